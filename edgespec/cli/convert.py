"""`edgespec convert`: a pack from a checkpoint or a GGUF, quantized and checked."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgespec import __version__
from edgespec.models.checks import user_path
from edgespec.models.errors import UsageError

from .progress import ConsoleReporter
from .streams import emit

if TYPE_CHECKING:
    from edgespec.convert.conversion import Converted

QUANTS = ("F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "Q4_1")


class _Quants(click.ParamType[tuple[str, ...]]):
    name = "TYPE[,TYPE…]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        chosen = tuple(dict.fromkeys(part.strip().upper() for part in value.split(",")))
        for quant in chosen:
            if quant not in QUANTS:
                self.fail(f"{quant!r} isn't one of {', '.join(QUANTS)}", param, ctx)
        return chosen


@click.command("convert")
@click.argument("source")
@click.option("--draft", help="A smaller model with the same vocabulary that will draft: a source, too.")
@click.option(
    "--quant",
    "quants",
    type=_Quants(),
    default=(),
    help=f"Type of the weights: {', '.join(QUANTS)}; several make several packs. [default: a GGUF's own, "
    "Q4_K_M for checkpoints]",
)
@click.option("--imatrix", metavar="TEXT", help="A text file: what matters on it is kept best (an importance matrix).")
@click.option(
    "-o",
    "--output",
    metavar="PACK",
    help="The folder to make. [default: one named after source and type, in the folder of `edgespec list`]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a pack instead of text.")
def command(source: str, draft: str | None, quants: tuple[str, ...], imatrix: str | None, output: str | None,
            as_json: bool) -> None:  # fmt: skip
    """Make a pack of SOURCE, and check that it still says the same.

    SOURCE is a Hugging Face checkpoint folder (safetensors), a GGUF file, a name from `edgespec list`, or one on the
    hub (owner/name). An interrupted conversion goes on when the same command is given again.
    """
    from edgespec.convert.conversion import Order, convert
    from edgespec.convert.imatrix import check_text_file
    from edgespec.convert.source import resolve_source
    from edgespec.models.shelves import own_shelf

    text = None if imatrix is None else user_path("--imatrix", imatrix)
    if text is not None:
        check_text_file(text)
    target = resolve_source(source)
    helper = None if draft is None else resolve_source(draft, "--draft")
    if text is not None and not quants and target.gguf is not None:
        raise UsageError("--imatrix is for quantizing; name a type with --quant")
    if output is None:
        suffix = f"-{(quants[0] if quants else 'Q4_K_M').lower()}" if len(quants) == 1 or target.checkpoint else ""
        out = own_shelf() / f"{target.name}{'' if len(quants) > 1 else suffix}"
    else:
        out = user_path("-o", output)
        if not re.search(r"\w", out.name):
            raise UsageError(f"-o {output}: isn't a folder's name")
    order = Order(target, Path(out), helper, quants, text)
    with ConsoleReporter() as reporter:
        results = convert(order, f"edgespec {__version__}", reporter)
    for result in results:
        emit(json.dumps(_facts(result), ensure_ascii=False) if as_json else _described(result))


def _facts(result: Converted) -> dict[str, Any]:
    return {"pack": str(result.path), "was_there": result.was_there, "made": result.made}


def _described(result: Converted) -> str:
    lines = [f"{result.path}{': is there already, made from the same' if result.was_there else ''}"]
    for part, figures in result.made.get("checked", {}).items():
        lines.append(f"  {part}: {agreement_line(figures)}")
    return "\n".join(lines)


def agreement_line(figures: dict[str, Any]) -> str:
    """Figures of a check as a person reads them."""
    return (
        f"token ids equal on {figures['texts']} texts; same top token at {figures['same_top']:.1%} of "
        f"{figures['positions']} positions; KL divergence {figures['kl']:.2g} (99 % below {figures['kl_p99']:.2g}); "
        f"logits off by {figures['error']:.1%} (against {figures['reference']})"
    )
