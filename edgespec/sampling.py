"""From logits to the distribution that the next token is drawn from: small functions of arrays, composed.

Order, as in llama.cpp: logit bias and penalties, then top-k, typical-p, top-p, min-p, and last the temperature.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from edgespec.models.checks import check_kind, number, shown, whole
from edgespec.models.errors import UsageError

MAX_PENALTY_WINDOW = 1 << 16
_MOST_CHANGE = 1e6
"""Of a logit; real ones stay below 100. More would let sums overflow, and says nothing more."""
_RANGES = {
    "temperature": (0, math.inf), "top_p": (0, 1), "min_p": (0, 1), "typical_p": (0, 1),
    "repetition_penalty": (1e-3, 1e3),
    "presence_penalty": (-_MOST_CHANGE, _MOST_CHANGE), "frequency_penalty": (-_MOST_CHANGE, _MOST_CHANGE),
}  # fmt: skip
_COUNTS = {"top_k": None, "penalty_window": MAX_PENALTY_WINDOW}


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How the next token is chosen.

    Attributes:
        temperature: 0 takes the most likely token (greedy); filters then have no effect, penalties and bias do.
        top_k: keep the k most likely tokens; 0: off.
        top_p: keep the most likely tokens that reach this mass (1904.09751); 1: off.
        min_p: keep tokens at least this fraction as likely as the likeliest (2407.01082); 0: off.
        typical_p: keep the tokens nearest to the expected information that reach this mass (2202.00666); 1: off.
        repetition_penalty: divides positive and multiplies negative logits of recent tokens (1909.05858); 1: off.
        presence_penalty: subtracted once from the logits of recent tokens.
        frequency_penalty: subtracted for each time that a recent token occurred.
        penalty_window: how many last tokens, prompt included, count as recent.
        logit_bias: added to the logits of these tokens.
        seed: makes the draws repeatable; None: different each time.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 64
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            object.__setattr__(self, name, number(name, getattr(self, name), least, most))
        for name, highest in _COUNTS.items():
            object.__setattr__(self, name, whole(name, getattr(self, name), 0, highest))
        for name in ("top_p", "typical_p"):
            if getattr(self, name) == 0:
                raise UsageError(f"{name} is 0; it must be above 0 (1 is off)")
        if self.seed is not None:
            object.__setattr__(self, "seed", whole("seed", self.seed))
        check_kind("logit_bias", self.logit_bias, Mapping)
        biases = {whole("a token of logit_bias", t): _bias(t, value) for t, value in self.logit_bias.items()}
        object.__setattr__(self, "logit_bias", biases)


def _bias(token: int, value: Any) -> float:
    if isinstance(value, float) and value == -math.inf:
        return value
    return number(f"logit_bias of token {shown(token)}", value, -_MOST_CHANGE, _MOST_CHANGE)


class Candidates(NamedTuple):
    """Tokens still in the running and their logits; both of shape (candidates,)."""

    tokens: np.ndarray
    logits: np.ndarray

    def keep(self, chosen: np.ndarray) -> Candidates:
        return Candidates(self.tokens[chosen], self.logits[chosen])


Adjust = Callable[[np.ndarray, Sequence[int]], None]
"""Changes float64 logits (vocabulary,) in place, given the tokens before them."""
Filter = Callable[[Candidates], Candidates]


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of float64 logits (n,). Logits of minus infinity get exactly 0."""
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def bias(biases: Mapping[int, float]) -> Adjust:
    tokens = np.fromiter(biases.keys(), np.int64)
    values = np.fromiter(biases.values(), np.float64)

    def adjust(logits: np.ndarray, _history: Sequence[int]) -> None:
        logits[tokens] += values

    return adjust


def penalties(repetition: float, presence: float, frequency: float, window: int) -> Adjust:
    def adjust(logits: np.ndarray, history: Sequence[int]) -> None:
        if not window or not history:
            return
        tokens, counts = np.unique(np.asarray(history[-window:], np.int64), return_counts=True)
        values = logits[tokens]
        values = np.where(values > 0, values / repetition, values * repetition)
        logits[tokens] = values - presence - frequency * counts

    return adjust


def top_k(k: int) -> Filter:
    def keep(candidates: Candidates) -> Candidates:
        return candidates if len(candidates.tokens) <= k else candidates.keep(largest(candidates.logits, k))

    return keep


def largest(values: np.ndarray, k: int) -> np.ndarray:
    """Indices of the k largest of n >= k values, in ascending order; of equal ones the first."""
    # partitioning values is several times faster than partitioning indices
    least = np.partition(values, -k)[-k]
    chosen = np.flatnonzero(values >= least)
    if len(chosen) > k:
        ties = np.flatnonzero(values[chosen] == least)
        chosen = np.delete(chosen, ties[k - len(chosen) :])
    return chosen


def top_p(mass: float) -> Filter:
    def keep(candidates: Candidates) -> Candidates:
        probabilities = softmax(candidates.logits)
        # what is left out here has less than 1 - mass together, so the wanted set lies within and less is sorted
        likely = np.flatnonzero(probabilities >= (1 - mass) / len(probabilities))
        order = likely[np.argsort(-probabilities[likely], kind="stable")]
        return candidates.keep(_reaching(order, probabilities, mass))

    return keep


def typical_p(mass: float) -> Filter:
    def keep(candidates: Candidates) -> Candidates:
        probabilities = softmax(candidates.logits)
        with np.errstate(divide="ignore"):
            surprise = -np.log(probabilities)
        entropy = float(np.sum(probabilities[probabilities > 0] * surprise[probabilities > 0]))
        order = np.argsort(np.abs(surprise - entropy), kind="stable")
        return candidates.keep(_reaching(order, probabilities, mass))

    return keep


def min_p(fraction: float) -> Filter:
    def keep(candidates: Candidates) -> Candidates:
        return candidates.keep(candidates.logits >= candidates.logits.max() + math.log(fraction))

    return keep


def temper(temperature: float) -> Filter:
    def scale(candidates: Candidates) -> Candidates:
        # the maximum is taken out first, and what a tiny temperature then drives below all floats has no chance anyway
        with np.errstate(over="ignore"):
            return Candidates(candidates.tokens, (candidates.logits - candidates.logits.max()) / temperature)

    return scale


def _reaching(order: np.ndarray, probabilities: np.ndarray, mass: float) -> np.ndarray:
    """The shortest beginning of `order` whose probabilities sum to `mass`; at least one."""
    count = int(np.searchsorted(np.cumsum(probabilities[order]), mass)) + 1
    return order[:count]


class Sampler:
    """The composed functions for one set of options."""

    def __init__(self, options: SamplingOptions) -> None:
        self.options = options
        self.greedy = options.temperature == 0
        self._adjusts = _adjusts(options)
        self._filters = [] if self.greedy else _filters(options)
        self.window = options.penalty_window if _penalised(options) else 0
        """How many tokens of history `distribution` and `best` look at."""
        self.plain = not self._adjusts
        """Whether `best` is simply the largest logit."""

    def distribution(self, logits: np.ndarray, history: Sequence[int]) -> np.ndarray:
        """p of the next token, float64 (vocabulary,), for logits (vocabulary,) after the tokens of `history`."""
        candidates = self._candidates(logits, history)
        for apply in self._filters:
            candidates = apply(candidates)
        p = np.zeros(len(logits))
        p[candidates.tokens] = softmax(candidates.logits)
        return p

    def _candidates(self, logits: np.ndarray, history: Sequence[int]) -> Candidates:
        k = self.options.top_k
        if self.plain and 0 < k < len(logits):  # what the filter would keep, found before the copy to float64
            tokens = largest(logits, k)
            return Candidates(tokens, logits[tokens].astype(np.float64))
        adjusted = self.adjusted(logits, history)
        return Candidates(np.arange(len(adjusted)), adjusted)

    def best(self, logits: np.ndarray, history: Sequence[int]) -> int:
        """The most likely next token."""
        return int((logits if self.plain else self.adjusted(logits, history)).argmax())

    def adjusted(self, logits: np.ndarray, history: Sequence[int]) -> np.ndarray:
        """Logits after bias and penalties: a float64 copy."""
        adjusted = logits.astype(np.float64)
        for adjust in self._adjusts:
            adjust(adjusted, history)
        if self._adjusts and adjusted.max() == -math.inf:
            raise UsageError("logit_bias rules out every token")
        return adjusted


def draw(p: np.ndarray, rng: np.random.Generator) -> int:
    """A token drawn from p, float64 (vocabulary,), which need not sum to exactly 1."""
    tokens = np.flatnonzero(p > 0)  # several times faster than on the numbers themselves
    cumulative = np.cumsum(p[tokens])
    index = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
    return int(tokens[min(index, len(tokens) - 1)])


def _penalised(options: SamplingOptions) -> bool:
    return options.repetition_penalty != 1 or options.presence_penalty != 0 or options.frequency_penalty != 0


def _adjusts(options: SamplingOptions) -> list[Adjust]:
    adjusts = [bias(options.logit_bias)] if options.logit_bias else []
    if _penalised(options):
        adjusts.append(
            penalties(
                options.repetition_penalty, options.presence_penalty, options.frequency_penalty, options.penalty_window
            )
        )
    return adjusts


def _filters(options: SamplingOptions) -> list[Filter]:
    filters: list[Filter] = []
    if options.top_k:
        filters.append(top_k(options.top_k))
    if options.typical_p < 1:
        filters.append(typical_p(options.typical_p))
    if options.top_p < 1:
        filters.append(top_p(options.top_p))
    if options.min_p > 0:
        filters.append(min_p(options.min_p))
    return [*filters, temper(options.temperature)]
