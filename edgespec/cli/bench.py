"""`edgespec bench`: strategies against plain decoding, on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from edgespec.bench.prompts import CATEGORIES
from edgespec.models.checks import user_path
from edgespec.models.errors import UsageError
from edgespec.strategies import STRATEGIES

from .progress import ConsoleReporter
from .streams import emit, notice
from .tables import file_size, table

_RUNTIMES = ("llamacpp", "llamacpp-stock")


class _Names(click.ParamType[tuple[str, ...]]):
    """Names separated by commas, of some that are known."""

    def __init__(self, known: tuple[str, ...]) -> None:
        self.name, self._known = "a,b,…", known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        chosen = tuple(dict.fromkeys(part.strip() for part in value.split(",")))
        for name in chosen:
            if name not in self._known:
                self.fail(f"{name!r} isn't one of {', '.join(self._known)}", param, ctx)
        return chosen


@click.command("bench")
@click.argument("model", required=False)
@click.option("--draft", help="A smaller model with the same vocabulary, to draft: a GGUF file or a name.")
@click.option("--strategies", type=_Names(STRATEGIES), help="Besides plain. [default: all that this model has]")
@click.option(
    "--runtimes",
    type=_Names(_RUNTIMES),
    default=_RUNTIMES[:1],
    help="llamacpp, and llamacpp-stock, without our kernels, to compare with. [default: llamacpp]",
)
@click.option("--categories", type=_Names(CATEGORIES), default=CATEGORIES, help=f"[default: {','.join(CATEGORIES)}]")
@click.option("--limit", type=click.IntRange(1, 6), default=6, show_default=True, help="Prompts a category.")
@click.option("--rounds", type=click.IntRange(1, 20), default=2, show_default=True, help="Repetitions, at least.")
@click.option("-n", "--max-tokens", type=click.IntRange(1), default=128, show_default=True, help="Tokens an answer.")
@click.option("--ctx", type=click.IntRange(256), default=2048, show_default=True, help="Tokens that the context holds.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads. [default: one a core]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw a picture: a .png or .svg file.")
def command(model: str | None, draft: str | None, strategies: tuple[str, ...] | None, runtimes: tuple[str, ...],
            categories: tuple[str, ...], limit: int, rounds: int, max_tokens: int, ctx: int, threads: int | None,
            as_json: bool, plot: Path | None) -> None:  # fmt: skip
    """Measure how fast MODEL answers prompts of eight kinds, with each strategy and without.

    Every answer is compared with plain decoding of the same prompt in the same round. Let the machine do nothing else
    meanwhile: it says when plain decoding doesn't agree with itself.
    """
    from edgespec.bench.machine import machine_facts
    from edgespec.bench.report import draw, to_json
    from edgespec.bench.run import Plan, Results, run_bench
    from edgespec.draft_finder import draft_advice
    from edgespec.models.shelves import shelved_models
    from edgespec.runtimes.base import RuntimeOptions

    if plot is not None:
        plot = user_path("--plot", plot)
        if plot.suffix not in (".png", ".svg"):
            raise UsageError(f"--plot {plot}: the ending must be .png or .svg")
        if not plot.absolute().parent.is_dir():
            raise UsageError(f"--plot {plot}: there is no such folder")
        if plot.is_dir():
            raise UsageError(f"--plot {plot}: is a folder")
    load = {"ctx": ctx, "threads": threads}
    RuntimeOptions(ctx=ctx, threads=threads)  # what can't be is said at once
    target, helper = _paths(model, draft)
    chosen = strategies or ("lookup", *(["draft"] if helper else []), "auto")
    if "draft" in chosen and helper is None:
        raise UsageError(f"--strategies draft needs a draft model: {draft_advice(target, shelved_models())}")
    draft_path = str(helper) if helper else None
    plan = Plan(str(target), draft_path, chosen, runtimes, categories, load, limit, max_tokens, rounds)
    results, interrupted = Results(), False
    try:
        with ConsoleReporter() as reporter:
            run_bench(plan, results, lambda title: reporter.step(title, 0), reporter.note)
    except KeyboardInterrupt:
        if not results.noise:
            raise
        interrupted = True
        notice("interrupted; this is what was finished")
    found = to_json(plan, results, machine_facts())
    emit(json.dumps(found, ensure_ascii=False) if as_json else described(found))
    if plot is not None:
        draw(found, plot)
    if interrupted:
        raise KeyboardInterrupt


def _paths(model: str | None, draft: str | None) -> tuple[Path, Path | None]:
    from edgespec.models.manifest import open_pack
    from edgespec.models.registry import default_model_path
    from edgespec.models.resolve import resolve_model

    path = default_model_path() if model is None else resolve_model(model)
    helper = open_pack(path).draft if draft is None else resolve_model(draft, "--draft")
    return path.absolute(), helper.absolute() if helper else None


def described(found: dict[str, Any]) -> str:
    """The table that people read."""
    rows = found["rows"]
    columns = {
        "category": [row["category"] for row in rows],
        "strategy": [row["strategy"] for row in rows],
        "runtime": [row["runtime"] for row in rows],
        "tok/s": [f"{row['tokens_per_second']:.1f}" for row in rows],
        "x plain": [f"{row['ratio_to_plain']:.2f}" for row in rows],
        "(range)": [_spread(row) for row in rows],
        "x stock": ["" if row["ratio_to_stock"] is None else f"{row['ratio_to_stock']:.2f}" for row in rows],
        "tok/pass": [f"{row['tokens_per_pass']:.2f}" for row in rows],
        "accepted at 1 2 3 4": [" ".join(f"{share:.0%}" for share in row["acceptance_by_depth"][:4]) for row in rows],
        "first s": [f"{row['time_to_first_token_s']:.2f}" for row in rows],
        "memory": [file_size(row["peak_memory_bytes"]) for row in rows],
    }
    if all(row["ratio_to_stock"] is None for row in rows):
        del columns["x stock"]
    lines = [f"{found['model']}{' + ' + found['draft'] if found['draft'] else ''}; {found['machine']['summary']}", ""]
    lines.append(table(tuple(columns), list(zip(*columns.values(), strict=True))))
    for runtime, curve in found["curve"].items():
        times = ", ".join(f"{n}: {ms:.0f} ms" for n, ms in curve.items())
        lines.append(f"\n{runtime}: a pass over n tokens at a context of {found['settings']['ctx'] // 2}: {times}")
    return "\n".join(lines)


def _spread(row: dict[str, Any]) -> str:
    return f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}" if row["strategy"] != "plain" else ""
