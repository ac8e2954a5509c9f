"""Runs the bench: strategies interleaved, plain among them, until plain agrees with itself or patience ends."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgespec.events import Stats
from edgespec.models.child import run_child

CURVE_SIZES = (1, 2, 4, 8, 16, 32)
NOISE = 0.05
"""Two rounds of plain decoding that differ by more than this share are noise, and are repeated."""
_MOST_EXTRA_ROUNDS = 2
STOCK = "llamacpp-stock"
"""Without our kernels. Beside other runtimes it only runs plain decoding, for them to be compared with."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured.

    Attributes:
        strategies: besides plain, which always runs.
        load: options of `edgespec.load` for all.
        limit: prompts a category.
        tokens: at most so many an answer.
        rounds: at least so many.
    """

    model: str
    draft: str | None
    strategies: tuple[str, ...]
    runtimes: tuple[str, ...]
    categories: tuple[str, ...]
    load: dict[str, Any]
    limit: int
    tokens: int
    rounds: int

    @property
    def series(self) -> list[tuple[str, str]]:
        """What runs in each round: strategies and runtimes."""
        names = ("plain", *(name for name in self.strategies if name != "plain"))
        return [
            (name, runtime)
            for runtime in self.runtimes
            for name in names
            if name == "plain" or runtime != STOCK or len(self.runtimes) == 1
        ]


@dataclass(slots=True)
class Results:
    """What was measured: of each category, strategy and runtime the rounds, of each round one `Stats` a prompt."""

    rounds: dict[tuple[str, str, str], list[list[Stats]]] = field(default_factory=dict)
    curves: dict[str, dict[int, float]] = field(default_factory=dict)
    noise: dict[tuple[str, str], float] = field(default_factory=dict)
    """By category and runtime: how far apart the rounds of plain decoding lie that are nearest to each other."""


Say = Callable[[str], None]


def run_bench(plan: Plan, results: Results, begin: Say, note: Say) -> None:
    """Measure everything.

    Args:
        results: what is measured is added to it, so that something is left where this is interrupted.
        begin: told what is measured now.
        note: told what people should know, such as noise.

    Raises:
        ModelFileError: a model can't be run.
    """
    for runtime in plan.runtimes:
        begin(f"{runtime}: t(n)")
        results.curves[runtime] = _curve(plan, runtime)
    for category in plan.categories:
        _measure_category(plan, category, results, begin, note)


def _measure_category(plan: Plan, category: str, results: Results, begin: Say, note: Say) -> None:
    def noise() -> dict[str, float]:
        return {runtime: _noise(results.rounds[category, "plain", runtime]) for runtime in plan.runtimes}

    for round_ in range(plan.rounds + _MOST_EXTRA_ROUNDS):
        if round_ >= plan.rounds:
            worst = max(noise().values())
            if worst <= NOISE:
                break
            note(f"{category}: rounds of plain decoding differ by {worst:.0%}, so it is repeated")
        # there and back again, so that a machine that slows down doesn't favour the first
        for name, runtime in plan.series if round_ % 2 == 0 else plan.series[::-1]:
            begin(f"{runtime}: {category}, {name}, round {round_ + 1}")
            stats = _answers(plan, runtime, name, category)
            results.rounds.setdefault((category, name, runtime), []).append(stats)
    for runtime, found in noise().items():
        results.noise[category, runtime] = found
        if found > NOISE:
            note(f"{category}: {runtime}'s plain decoding still differs by {found:.0%} between rounds: a busy machine")


def _noise(rounds: Sequence[Sequence[Stats]]) -> float:
    """How far apart the two rounds are that agree best; nothing is known from one."""
    speeds = sorted(statistics.median(s.tokens_per_second for s in answers) for answers in rounds)
    return min((b / a - 1 for a, b in itertools.pairwise(speeds)), default=0.0)


def _answers(plan: Plan, runtime: str, strategy: str, category: str) -> list[Stats]:
    found: list[Stats] = []
    job = {
        "model": plan.model,
        "draft": plan.draft,
        "load": plan.load | {"strategy": strategy, "runtime": runtime},
        "category": category,
        "limit": plan.limit,
        "tokens": plan.tokens,
    }
    run_child("edgespec.bench.worker", [json.dumps(job)], lambda said: found.append(Stats.of_json(said["stats"])))
    return found


def _curve(plan: Plan, runtime: str) -> dict[int, float]:
    found: dict[int, float] = {}
    job = {
        "model": plan.model,
        "draft": None,
        "load": plan.load | {"strategy": "plain", "runtime": runtime, "sequences": 2},  # one to measure on
        "curve": CURVE_SIZES,
        "context": plan.load["ctx"] // 2,
    }

    def heard(said: dict[str, Any]) -> None:
        found.update({int(n): seconds for n, seconds in said["seconds"].items()})

    run_child("edgespec.bench.worker", [json.dumps(job)], heard)
    return found
