"""Chooses, before each pass, who drafts and how much. Plain decoding is always among the choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .costs import CostCurve
from .draft_length import ExpectedSpeed, LengthRule, Record
from .drafters.base import Context, Drafter, Outcome, Prospect

_ALLOWED_LOSS = 0.02
"""Share of the time that may be lost to drafts that don't pay, so that one that starts to pay is noticed."""
_FRESH = (16, 128)
"""Passes after which t(1) is measured again by a plain pass while drafts are chosen: at first, and, doubling, at most.
Without it a curve that was measured too flat could never be found out."""
_FIRST_PASSES = 1.5
"""Plain passes' worth of time that may be lost from the start."""


class Choice(NamedTuple):
    """Who drafts (None: nobody, a plain pass), how much, and what was known of it."""

    drafter: Drafter | None
    budget: int
    group: int
    setup_seconds: float = 0.0


PLAIN = Choice(None, 0, 0)


class Controller:
    """Weighs the drafters by a length rule. Lives as long as the model, so that what one answer taught helps the next.

    Args:
        drafters: tried in this order where the rule can't weigh them against each other.
        rule: how much to draft.
        curve: t(n) of the target; corrected by each pass. None where the rule doesn't look at costs.
        most: never draft more; None: no limit.
    """

    def __init__(
        self, drafters: Sequence[Drafter], rule: LengthRule, curve: CostCurve | None, most: int | None = None
    ) -> None:
        self._drafters, self._rule, self._curve, self._most = list(drafters), rule, curve, most
        self._records: dict[tuple[str, int], Record] = {}
        self._drafting: dict[str, float] = {}
        self._seconds = self._lost = 0.0
        self._chosen = PLAIN
        self._since_plain, self._fresh_for = 0, _FRESH[0]

    def expect_drafting(self, drafter: str, seconds: float) -> None:
        """What one token of a drafter costs, before any was drafted."""
        self._drafting.setdefault(drafter, seconds)

    def choose(self, context: Context, room: int) -> Choice:
        """The choice for the next pass; at most `room` draft tokens."""
        self._chosen = self._weigh(context, room)
        return self._chosen

    def _weigh(self, context: Context, room: int) -> Choice:
        best, best_rate, declined = PLAIN, 0.0, []
        room = room if self._most is None else min(room, self._most)
        for drafter in self._drafters:
            prospect = drafter.prospect(context) if room > 0 else None
            if prospect is None or prospect.limit < 1:
                continue
            prospect = prospect._replace(limit=min(prospect.limit, room))
            record, cost = self._record(drafter.name, prospect), self._drafting.get(drafter.name, 0.0)
            proposal = self._rule.propose(record, prospect, cost)
            if proposal.length == 0:
                declined.append((drafter, prospect, record, cost))
            elif proposal.rate > best_rate:
                best = Choice(drafter, proposal.length, prospect.group, prospect.setup_seconds)
                best_rate = proposal.rate
        if not isinstance(self._rule, ExpectedSpeed):
            return best
        if best.drafter is None:
            return self._probe(self._rule, declined)
        return PLAIN if self._since_plain >= self._fresh_for else best

    def _probe(self, rule: ExpectedSpeed, declined: list[tuple[Drafter, Prospect, Record, float]]) -> Choice:
        """The most promising draft that isn't expected to pay, as long as losses stay within what is allowed."""
        if self._curve is None or not declined:
            return PLAIN
        probes = [(rule.probe(record, prospect, cost), d, prospect, cost) for d, prospect, record, cost in declined]
        proposal, drafter, prospect, cost = max(probes, key=lambda probe: probe[0].rate)
        # at worst nothing is accepted, and the pass gives the one token that a plain pass would
        loss = self._curve(proposal.length + 1) + proposal.length * cost + prospect.setup_seconds - self._curve(1)
        if self._lost + loss > _FIRST_PASSES * self._curve(1) + _ALLOWED_LOSS * self._seconds:
            return PLAIN
        return Choice(drafter, proposal.length, prospect.group, prospect.setup_seconds)

    def observe(self, outcome: Outcome) -> None:
        """Learn from a pass, a plain one included."""
        seconds = outcome.draft_seconds + outcome.target_seconds
        self._seconds += seconds
        if outcome.drafted:
            self._since_plain += 1
        else:
            if self._since_plain >= self._fresh_for:
                self._fresh_for = min(2 * self._fresh_for, _FRESH[1])
            self._since_plain = 0
        if self._curve is not None:
            if outcome.drafted:
                gained = (outcome.accepted + 1) * self._curve(1)
                self._lost = max(0.0, self._lost + seconds - gained)
            self._curve.observe(len(outcome.tree), outcome.target_seconds)
        if outcome.drafted:
            self._records[outcome.drafter, outcome.group].observe(outcome)
            each = max(0.0, outcome.draft_seconds - self._chosen.setup_seconds) / outcome.drafted
            known = self._drafting.get(outcome.drafter)
            self._drafting[outcome.drafter] = each if known is None else 0.8 * known + 0.2 * each

    def _record(self, name: str, prospect: Prospect) -> Record:
        return self._records.setdefault((name, prospect.group), Record(prospect.prior))
