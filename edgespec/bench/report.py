"""What a bench found: rows for machines, a table for people, a picture."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from edgespec.events import Stats
from edgespec.models.errors import RuntimeFailure

from .run import STOCK, Plan, Results


def rows(plan: Plan, results: Results) -> list[dict[str, Any]]:
    """One row a category, strategy and runtime; medians over prompts and rounds, ratios of each prompt and round.

    Of a bench that was interrupted, the categories that were finished.
    """
    finished = [key for key in results.rounds if key[1:] in plan.series and (key[0], key[2]) in results.noise]
    return [_row(key, results) for key in finished]


def _row(key: tuple[str, str, str], results: Results) -> dict[str, Any]:
    category, strategy, runtime = key
    rounds = results.rounds[key]
    answers = [stats for round_ in rounds for stats in round_]
    ratios = _ratios(rounds, results.rounds[category, "plain", runtime])
    stock = _ratios(rounds, results.rounds.get((category, "plain", STOCK), []))
    passes = sum(stats.target_passes for stats in answers)
    return {
        "category": category,
        "strategy": strategy,
        "runtime": runtime,
        "tokens_per_second": statistics.median(stats.tokens_per_second for stats in answers),
        "ratio_to_plain": statistics.median(ratios) if ratios else 0.0,
        "ratio_low": min(ratios, default=0.0),
        "ratio_high": max(ratios, default=0.0),
        "ratio_to_stock": statistics.median(stock) if stock else None,
        "tokens_per_pass": sum(stats.completion_tokens for stats in answers) / passes if passes else 0.0,
        "acceptance": _share(sum(s.accepted_tokens for s in answers), sum(s.drafted_tokens for s in answers)),
        "acceptance_by_depth": acceptance_by_depth(answers),
        "time_to_first_token_s": statistics.median(stats.time_to_first_token_s for stats in answers),
        "peak_memory_bytes": max(stats.peak_memory_bytes for stats in answers),
        "noise": results.noise[category, runtime],
    }


def _ratios(rounds: list[list[Stats]], others: list[list[Stats]]) -> list[float]:
    """Speeds against those of the same prompts in the same rounds; none without others."""
    return [
        one.tokens_per_second / other.tokens_per_second
        for ours, theirs in zip(rounds, others, strict=bool(others))
        for one, other in zip(ours, theirs, strict=True)
        if other.tokens_per_second > 0
    ]


def acceptance_by_depth(answers: list[Stats]) -> list[float]:
    """Of the passes that drafted so deep, the share in which the draft was accepted down to there."""
    depths = max((len(stats.drafted_by_depth) for stats in answers), default=0)

    def total(counts: str, depth: int) -> int:
        columns = (getattr(stats, counts) for stats in answers)
        return sum(column[depth] if depth < len(column) else 0 for column in columns)

    return [_share(total("accepted_by_depth", d), total("drafted_by_depth", d)) for d in range(depths)]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def to_json(plan: Plan, results: Results, machine: dict[str, Any]) -> dict[str, Any]:
    """The object that `bench --json` prints."""
    curves = {
        runtime: {str(n): seconds * 1000 for n, seconds in curve.items()} for runtime, curve in results.curves.items()
    }
    return {
        "model": Path(plan.model).name,
        "draft": Path(plan.draft).name if plan.draft else None,
        "machine": machine,
        "settings": {"limit": plan.limit, "tokens": plan.tokens, "rounds": plan.rounds, "ctx": plan.load["ctx"]},
        "curve": curves,
        "rows": rows(plan, results),
    }


def draw(found: dict[str, Any], path: Path) -> None:
    """Write a picture: speed by category and strategy, and t(n); PNG or SVG by the path's ending.

    Raises:
        RuntimeFailure: matplotlib isn't installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise RuntimeFailure("--plot needs matplotlib; install it with: pip install 'edgespec[plot]'") from None
    from edgespec.models.cache import replacing

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 1))
    _bars(left, found["rows"])
    for runtime, curve in found["curve"].items():
        sizes = sorted(map(int, curve))
        right.plot(sizes, [curve[str(n)] / curve["1"] for n in sizes], marker="o", label=runtime)
    right.set(xlabel="tokens in one pass", ylabel="t(n) / t(1)", title="cost of a pass", ylim=(0, None))
    right.legend()
    figure.suptitle(f"{found['model']}, {found['machine']['summary']}", fontsize=8)
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=120)


def _bars(axes: Any, table: list[dict[str, Any]]) -> None:
    """A group of bars a category, one a strategy, with the range of the ratios."""
    categories = list(dict.fromkeys(row["category"] for row in table))
    series = list(dict.fromkeys((row["strategy"], row["runtime"]) for row in table if row["strategy"] != "plain"))
    width = 0.8 / max(1, len(series))
    for i, (strategy, runtime) in enumerate(series):
        chosen = [row for row in table if (row["strategy"], row["runtime"]) == (strategy, runtime)]
        places = [categories.index(row["category"]) + (i - (len(series) - 1) / 2) * width for row in chosen]
        middle = [row["ratio_to_plain"] for row in chosen]
        errors = [
            [row["ratio_to_plain"] - row["ratio_low"] for row in chosen],
            [row["ratio_high"] - row["ratio_to_plain"] for row in chosen],
        ]
        axes.bar(places, middle, width, yerr=errors, label=strategy, error_kw={"linewidth": 0.8})
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks(range(len(categories)), categories, rotation=30)
    axes.set(ylabel="speed, plain = 1", title="speed by category and strategy")
    axes.legend()
