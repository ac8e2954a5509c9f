"""t(n): what one forward pass over n tokens costs on this device, measured once and corrected by every step."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from edgespec.models.cache import remembered
from edgespec.runtimes.base import Runtime, Work
from edgespec.runtimes.tree import TokenTree

SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 16)
_ROUNDS = 3
_CONTEXT = 64
_LEARNING = 0.1
_TRUST = (0.5, 2.0)
"""A single step corrects the curve as if it had taken at least and at most this many times what was expected."""


class CostCurve:
    """Seconds of a pass over n tokens.

    Args:
        seconds: measured time by n. Between the sizes it is interpolated, beyond them extended by the last slope.
    """

    def __init__(self, seconds: dict[int, float]) -> None:
        if not seconds or any(n < 1 or not 0 < s < math.inf for n, s in seconds.items()):
            raise ValueError("a cost curve needs a positive time for at least one size")
        self._sizes = np.array(sorted(seconds), np.float64)
        # a pass over more tokens never costs less; a measurement that says so was disturbed
        self._seconds = np.maximum.accumulate([seconds[int(n)] for n in self._sizes])
        self._drift = 1.0
        self._ratios: dict[int, float] = {}
        self._observed: Counter[int] = Counter()

    def __call__(self, n: int) -> float:
        """Seconds expected now for a pass over n tokens."""
        return self._measured(n) * self._drift * self._ratios.get(n, 1.0)

    def observe(self, n: int, seconds: float) -> None:
        """Correct the curve by what a pass really took.

        A pass over one token tells how fast the machine is now (a growing context, another process) and moves the whole
        curve; a pass over more corrects its own size relative to that. The first passes of a size correct it the most,
        so that a wrong measurement doesn't last.
        """
        surprise = min(max(seconds / self(n), _TRUST[0]), _TRUST[1])
        self._observed[n] += 1
        correction = surprise ** max(_LEARNING, 1 / (self._observed[n] + 4))
        if n == 1:
            self._drift *= correction
        else:
            self._ratios[n] = self._ratios.get(n, 1.0) * correction

    def scale_to(self, seconds: float) -> None:
        """Move the whole curve to where a pass over one token takes so long."""
        self._drift = seconds / self._measured(1)

    def _measured(self, n: int) -> float:
        sizes, seconds = self._sizes, self._seconds
        if len(sizes) == 1:
            return float(seconds[0] * n / sizes[0])
        if n <= sizes[-1]:
            return float(np.interp(n, sizes, seconds))
        slope = (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])
        return float(seconds[-1] + slope * (n - sizes[-1]))


def measured_curve(
    runtime: Runtime, sizes: tuple[int, ...] = SIZES, notify: Callable[[], None] | None = None
) -> CostCurve:
    """The curve of a runtime: measured, or remembered from a run with the same model, device, threads and backend.

    A remembered curve is brought to today's speed by some passes over one token: where the machine was busy when it was
    measured, a draft model would look too dear to be tried ever again.

    Args:
        notify: called once before a measurement, which takes some tens of passes.
    """
    sizes, now = _possible(runtime, sizes), False

    def measured() -> dict[str, Any]:
        nonlocal now
        now = True
        if notify is not None:
            notify()
        return {"runtime": runtime.identity, "seconds": measure(runtime, sizes)}

    curve = remembered("costs", f"{runtime.identity}|{sizes}", _restored, measured)
    if not now:
        curve.scale_to(measure(runtime, (1,), context=1)[1])
    return curve


def _restored(stored: dict[str, Any]) -> CostCurve:
    return CostCurve({int(n): float(s) for n, s in stored["seconds"].items()})


def measure(
    runtime: Runtime, sizes: tuple[int, ...] = SIZES, rounds: int = _ROUNDS, context: int = _CONTEXT
) -> dict[int, float]:
    """Median seconds of a pass by number of tokens, sizes interleaved, on a sequence of its own.

    Sizes that the runtime's context or tree can't hold are left out.

    Args:
        context: tokens in the cache before the pass; fewer where the runtime's context is shorter.
    """
    sizes = _possible(runtime, sizes)
    sequence = runtime.open()
    try:
        # ordinary tokens, spread over the vocabulary; the same for each size
        tokens = [int(t) for t in np.linspace(0, runtime.vocabulary.size - 1, context + max(sizes))]
        runtime.prefill(sequence, tokens[: min(context, runtime.context_length - max(sizes))])
        times: dict[int, list[float]] = {n: [] for n in sizes}
        for round_ in range(-1, rounds):  # the first round only warms up
            for n in sizes if round_ >= 0 else sizes[:2]:
                started = time.perf_counter()
                runtime.forward([Work(sequence, TokenTree.chain(tokens[-n:]))])
                times[n] += [time.perf_counter() - started] if round_ >= 0 else []
                runtime.truncate(sequence, sequence.length)
        return {n: float(np.median(values)) for n, values in times.items()}
    finally:
        runtime.release(sequence)


def _possible(runtime: Runtime, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes that fit into the runtime's largest tree and context; 1 always does."""
    most = max(1, min(runtime.options.draft_tokens + 1, runtime.context_length - 1))
    return sizes[:1] + tuple(n for n in sizes[1:] if n <= most)
