"""Do our kernels say what llama.cpp's own code says? Logits and perplexity of one model through both.

    python -m scripts.check_kernels MODEL [--reference FLOATS] [--tokens 4000] [--positions 300]

Prints how far logits lie apart (relative, in the mean over positions): our kernels in passes of 1 and of other sizes,
where nothing at all may differ; llama.cpp's between these sizes; ours against llama.cpp's; and, with a file of the same
weights as floats (made by `edgespec convert MODEL --quant F32`), both against that one. Then perplexity.
"""

from __future__ import annotations

from contextlib import closing
from importlib.resources import files
from pathlib import Path

import click
import numpy as np

from edgespec.bench.machine import machine_facts
from edgespec.convert.agreement import compare, log_sum, logits_after, scored
from edgespec.runtimes import Runtime, RuntimeOptions, runtime_class
from edgespec.runtimes.kernels import kernels

SIZES = (2, 3, 5, 8, 16)
TOLERANCE = 0.001


def text() -> str:
    """All texts of the bench: prose, code and configuration."""
    folder = files("edgespec.bench") / "texts"
    return "\n\n".join(file.read_text("utf-8") for file in sorted(folder.iterdir(), key=lambda file: file.name))


def perplexity(runtime: Runtime, tokens: list[int]) -> float:
    """exp of the mean surprise at each token but the first."""
    surprise = []
    for logits, token in zip(logits_after(runtime, tokens[:-1], max(SIZES)), tokens[1:], strict=True):
        values = logits.astype(np.float64)
        surprise.append(log_sum(values) - values[token])
    return float(np.exp(np.mean(surprise)))


@click.command(help=__doc__)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--reference", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--tokens", "count", default=4000, show_default=True, help="Of the text for perplexity.")
@click.option("--positions", default=300, show_default=True, help="Whose logits are compared.")
def main(model: Path, reference: Path | None, count: int, positions: int) -> None:
    click.echo(f"{model.name}; {machine_facts()['summary']}; kernels: {kernels().path or kernels().reason}")
    options = RuntimeOptions(ctx=count + max(SIZES), draft_tokens=max(SIZES), branches=1)
    loaded = [runtime_class(name).load(model, options) for name in ("llamacpp", "llamacpp-stock")]
    with closing(loaded[0]) as ours, closing(loaded[1]) as stock:
        tokens = ours.vocabulary.encode(text(), special=False, add_bos=True)[:count]
        some = tokens[:positions]
        # one after the other: a cache that holds two sequences keeps their tokens in other places
        alone, alone_stock = list(logits_after(ours, some, 1)), list(logits_after(stock, some, 1))
        for size in SIZES:
            pairs = zip(alone, logits_after(ours, some, size), strict=True)
            differing = sum(not np.array_equal(one, other) for one, other in pairs)
            noise = compare(iter(alone_stock), logits_after(stock, some, size))
            click.echo(
                f"passes of {size:>2} against 1: ours differ at {differing} of {len(some)} positions; "
                f"llama.cpp's by {noise.error:.2%}, same top {noise.same_top:.1%}, KL {noise.kl:.1e}"
            )
        apart = compare(logits_after(stock, some, max(SIZES)), logits_after(ours, some, max(SIZES)))
        click.echo(f"ours against llama.cpp's: {apart.error:.2%}, same top {apart.same_top:.1%}, KL {apart.kl:.1e}")
        if reference is not None:
            floats = list(scored(reference, some))
            for name, runtime in (("ours", ours), ("llama.cpp's", stock)):
                found = compare(iter(floats), logits_after(runtime, some, max(SIZES)))
                click.echo(
                    f"{name} against floats: {found.error:.2%}, same top {found.same_top:.1%}, KL {found.kl:.1e}"
                )
        a, b = perplexity(ours, tokens), perplexity(stock, tokens)
        click.echo(f"perplexity of {len(tokens)} tokens: {a:.4f}, llama.cpp's {b:.4f}, {a / b - 1:+.3%}")
    if abs(a / b - 1) > TOLERANCE:
        raise SystemExit(f"more than {TOLERANCE:.1%} apart")


if __name__ == "__main__":
    main()
