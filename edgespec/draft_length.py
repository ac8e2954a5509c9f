"""How much to draft: three rules, and the record of acceptance that they read."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from .costs import CostCurve
from .drafters.base import Outcome, Prospect

_DISCOUNT = 0.95
_PRIOR_WEIGHT = 2.0
_DEPTHS = 64
_SETUP_PASSES = 32


class Record:
    """Acceptance of one drafter's drafts of one group, by depth, older passes counting less."""

    def __init__(self, prior: float) -> None:
        self._prior = prior
        self._tried = [0.0] * _DEPTHS
        self._accepted = [0.0] * _DEPTHS
        self._prior_weight = [_PRIOR_WEIGHT] * _DEPTHS
        self.shares: deque[float] = deque(maxlen=10)
        """Accepted share of the last passes' drafts."""

    def acceptance(self, depth: int) -> float:
        """Chance that the draft token at `depth` (0 is the first) is accepted, those above it being so.

        A mean of what was seen and an expectation: at depth 0 the group's prior, below it the acceptance one depth up.
        The expectation weighs as much as two passes at first, and fades with each one seen.
        """
        expected = self._prior
        for i in range(min(depth, _DEPTHS - 1) + 1):
            weight = self._prior_weight[i]
            expected = (self._accepted[i] + weight * expected) / (self._tried[i] + weight)
        return expected

    def observe(self, outcome: Outcome) -> None:
        depths = outcome.tree.depths()
        deepest = max(depths)
        for i in range(min(deepest, outcome.accepted + 1, _DEPTHS)):
            self._tried[i] = self._tried[i] * _DISCOUNT + 1
            self._accepted[i] = self._accepted[i] * _DISCOUNT + (i < outcome.accepted)
            self._prior_weight[i] *= _DISCOUNT
        self.shares.append(outcome.accepted / deepest)


class Proposal(NamedTuple):
    """A length, and the tokens per second expected of it."""

    length: int
    rate: float


class LengthRule(Protocol):
    """Decides how many tokens to draft."""

    def propose(self, record: Record, prospect: Prospect, drafting_seconds: float) -> Proposal:
        """The length for a draft of this prospect; 0: don't draft.

        Args:
            drafting_seconds: what drafting one token costs.
        """


class FixedLength:
    """Always the same length, as far as the drafter can."""

    def __init__(self, length: int) -> None:
        self._length = length

    def propose(self, record: Record, prospect: Prospect, drafting_seconds: float) -> Proposal:
        return Proposal(min(self._length, prospect.limit), float("inf"))


class RecentAcceptance:
    """The rule from practice: by mean acceptance of the last 10 passes, above 0.7: 5, above 0.5: 3, else 1."""

    def propose(self, record: Record, prospect: Prospect, drafting_seconds: float) -> Proposal:
        shares = record.shares
        mean = sum(shares) / len(shares) if shares else 1.0
        length = 5 if mean > 0.7 else 3 if mean > 0.5 else 1
        return Proposal(min(length, prospect.limit), float("inf"))


class ExpectedSpeed:
    """The length that maximises expected tokens per second.

    A pass over a draft of n gives 1 + a_1 + a_1 a_2 + ... tokens (Leviathan et al. 2211.17192, equation 1, with an
    acceptance for each depth) and takes t(n + 1) plus drafting. What a drafter needs once to be ready is
    shared out over the passes that will profit from it.
    """

    def __init__(self, curve: CostCurve) -> None:
        self._curve = curve

    def propose(self, record: Record, prospect: Prospect, drafting_seconds: float) -> Proposal:
        best = Proposal(0, 1 / self._curve(1))
        for candidate in self._candidates(record, prospect, drafting_seconds):
            best = max(best, candidate, key=lambda c: c.rate)
        return best

    def probe(self, record: Record, prospect: Prospect, drafting_seconds: float) -> Proposal:
        """The best length that isn't 0."""
        return max(self._candidates(record, prospect, drafting_seconds), key=lambda c: c.rate)

    def _candidates(self, record: Record, prospect: Prospect, drafting_seconds: float) -> list[Proposal]:
        candidates, tokens, alive = [], 1.0, 1.0
        setup = prospect.setup_seconds / _SETUP_PASSES
        for length in range(1, prospect.limit + 1):
            alive *= record.acceptance(length - 1)
            tokens += alive
            seconds = self._curve(length + 1) + length * drafting_seconds + setup
            candidates.append(Proposal(length, tokens / seconds))
        return candidates
