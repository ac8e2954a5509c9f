"""Does speculation change what a model says? Greedy answers of each strategy against plain, on real models.

A first difference is excused only as a near-tie: the answer up to there is computed again in passes of 1, 2, 3, 4, 5
and 8 tokens, and the two tokens' logits must be no further apart than the backend's own noise between those sizes.

    python -m scripts.check_exactness MODEL [--draft FILE] [--prompts 200] [--tokens 128]
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np

import edgespec
from edgespec.model import Model
from edgespec.runtimes import Runtime, TokenTree, Work, runtime_class

from .prompts import mixed

_SIZES = (1, 5, 4, 8, 3, 2)


def first_difference(a: tuple[int, ...], b: tuple[int, ...]) -> int | None:
    """The first place where two answers differ; None where they don't."""
    if a == b:
        return None
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def gaps(runtime: Runtime, prompt: list[int], answer: list[int], first: int, second: int) -> Iterator[float]:
    """logit(first) - logit(second) after `answer`, with the whole answer computed in passes of one size, for each size.

    For each size the last token of `answer` stands once first and once last in its pass, since kernels that work on
    tiles treat the tokens that are left over in another way. What stands behind it is not looked at.
    """
    sequence = runtime.open()
    try:
        runtime.prefill(sequence, prompt[:-1])
        tokens = [prompt[-1], *answer]
        for size, behind in [(n, b) for n in _SIZES for b in sorted({0, n - 1})]:
            padded = tokens + prompt[:behind]
            # the first pass takes what is left over, so that the last one is whole
            ends = range(len(padded) % size or size, len(padded) + 1, size)
            for start, end in zip([0, *ends], ends, strict=False):
                (scores,) = runtime.forward([Work(sequence, TokenTree.chain(padded[start:end]))])
                row = scores.logits[max(-1 - behind, start - end)]
                gap = float(row[first] - row[second])
                runtime.commit(sequence, list(range(end - start)))
            yield gap
            runtime.truncate(sequence, len(prompt) - 1)
    finally:
        runtime.release(sequence)


def near_tie(gaps: Iterator[float]) -> tuple[bool, np.ndarray]:
    """Whether the gap is within the backend's noise, smaller than its spread between pass sizes; and the gaps seen."""
    values: list[float] = []
    for gap in gaps:
        values.append(gap)
        if len(values) > 1 and np.abs(values).min() <= np.ptp(values):
            return True, np.array(values)
    return False, np.array(values)


def prompt_tokens(model: Model, text: str) -> list[int]:
    assert model.template is not None
    return model.runtime.vocabulary.encode(
        model.template.render([{"role": "user", "content": text}]), special=True, add_bos=True
    )


@click.command(help=__doc__)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--draft", type=click.Path(path_type=Path))
@click.option("--strategies", default="lookup,draft")
@click.option("--prompts", default=200)
@click.option("--tokens", default=128)
@click.option("--length", default="4", help="Draft length: auto, practice or a number.")
@click.option("--branches", default=1)
@click.option("--bit-exact", is_flag=True, help="Draft only within the stable size: nothing may differ.")
def main(
    model: Path,
    draft: Path | None,
    strategies: str,
    prompts: int,
    tokens: int,
    length: str,
    branches: int,
    bit_exact: bool,
) -> None:
    questions = mixed(prompts)
    plain: dict[str, tuple[int, ...]] = {}
    times: defaultdict[str, float] = defaultdict(float)
    for strategy in ["plain", *strategies.split(",")]:
        counts = Counter[str]()
        with edgespec.load(
            model, draft=draft if strategy in ("draft", "auto") else None, strategy=strategy, draft_length=length,
            draft_branches=branches, bit_exact=bit_exact, ctx=2048,
        ) as loaded:  # fmt: skip
            checker = None
            for question in questions:
                started = time.perf_counter()
                answer = loaded.complete(question, max_tokens=tokens)
                times[strategy] += time.perf_counter() - started
                counts["drafted"] += answer.stats.drafted_tokens
                counts["accepted"] += answer.stats.accepted_tokens
                if strategy == "plain":
                    plain[question] = answer.tokens
                    continue
                at = first_difference(plain[question], answer.tokens)
                if at is None:
                    counts["identical"] += 1
                    continue
                checker = checker or runtime_class("llamacpp").load(model, loaded.runtime.options)
                pair = [(*t, -1)[at] for t in (plain[question], answer.tokens)]
                said = list(answer.tokens[:at])
                tied, values = near_tie(gaps(checker, prompt_tokens(loaded, question), said, *pair))
                verdict = "near-tie" if tied else "DIFFERENT"
                counts[verdict] += 1
                click.echo(
                    f"  {verdict} at token {at}: gap {values.min():+.3f} to {values.max():+.3f}: {question[:60]}"
                )
            if checker is not None:
                checker.close()
        if strategy != "plain":
            click.echo(
                f"{strategy}: {counts['identical']} of {prompts} identical, {counts['near-tie']} near-ties, "
                f"{counts['DIFFERENT']} different; {counts['accepted']} of {counts['drafted']} draft tokens accepted; "
                f"{times[strategy]:.0f} s against {times['plain']:.0f} s plain"
            )


if __name__ == "__main__":
    main()
