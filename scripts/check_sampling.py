"""The first two tokens of many drawn answers of a real model, plain against speculative: a two-sample chi-square.

python -m scripts.check_sampling MODEL --draft FILE [--draws 5000]
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click
import numpy as np
from scipy import stats

from edgespec.loading import load

PROMPT = "Name an animal."
RARE = 10
"""Pairs seen less often, in both samples together, are counted as one."""


def pairs(
    path: Path, draft: Path | None, strategy: str, draws: int, branches: int
) -> tuple[Counter[tuple[int, ...]], str]:
    """How often each pair of first tokens was drawn."""
    counts: Counter[tuple[int, ...]] = Counter()
    accepted = drafted = 0
    with load(
        path, draft=draft, strategy=strategy, draft_length=2 * branches, draft_branches=branches, ctx=256
    ) as model:
        for seed in range(draws):
            answer = model.complete(PROMPT, max_tokens=2, temperature=0.9, top_p=0.95, seed=seed + 10**6 * branches)
            counts[answer.tokens] += 1
            accepted += answer.stats.accepted_tokens
            drafted += answer.stats.drafted_tokens
    return counts, f"{accepted} of {drafted} accepted"


@click.command(help=__doc__)
@click.argument("model", type=click.Path(path_type=Path, exists=True))
@click.option("--draft", required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--draws", default=5000)
def main(model: Path, draft: Path, draws: int) -> None:
    plain, _ = pairs(model, None, "plain", draws, 1)
    for branches in (1, 2):
        other, fate = pairs(model, draft, "draft", draws, branches)
        common = [pair for pair in plain | other if plain[pair] + other[pair] >= RARE]
        table = np.array([[counts[pair] for pair in common] for counts in (plain, other)])
        rest = draws - table.sum(axis=1)
        table = np.column_stack([table, rest]) if rest.sum() else table
        p = stats.chi2_contingency(table).pvalue
        click.echo(
            f"{draws} draws, {len(plain | other)} different pairs, {len(common)} counted by themselves; "
            f"draft with {branches} branch(es), {fate}: chi-square p {p:.4f}"
        )


if __name__ == "__main__":
    main()
