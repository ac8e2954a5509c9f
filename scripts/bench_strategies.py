"""Strategies against plain decoding on an editing and a chat prompt, interleaved, each answer with a fresh controller.

python -m scripts.bench_strategies MODEL [--draft FILE] [--strategies lookup,auto] [--rounds 3] [--tokens 256]
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import click

from edgespec.bench.machine import machine_facts
from edgespec.events import Stats
from edgespec.loading import load

from .prompts import CHAT_PROMPT, EDIT_PROMPT

PROMPTS = {"edit": EDIT_PROMPT, "chat": CHAT_PROMPT}


def measure(path: Path, draft: Path | None, strategy: str, length: str, tokens: int) -> dict[str, Stats]:
    """Statistics of each prompt's answer from a model that was loaded for it alone."""
    results = {}
    for name, prompt in PROMPTS.items():
        with load(path, draft=draft if strategy in ("draft", "auto") else None, strategy=strategy, ctx=2048,
                  draft_length=length) as model:  # fmt: skip
            results[name] = model.complete(prompt, max_tokens=tokens).stats
    return results


@click.command(help=__doc__)
@click.argument("model", type=click.Path(path_type=Path, exists=True))
@click.option("--draft", type=click.Path(path_type=Path, exists=True))
@click.option("--strategies", default="lookup")
@click.option("--length", default="auto", help="Draft length: auto, practice or a number.")
@click.option("--rounds", default=3)
@click.option("--tokens", default=256)
def main(model: Path, draft: Path | None, strategies: str, length: str, rounds: int, tokens: int) -> None:
    click.echo(f"{model.name}; {machine_facts()['summary']}")
    names = ["plain", *strategies.split(",")]
    rows: dict[tuple[str, str], list[Stats]] = {(name, prompt): [] for name in names for prompt in PROMPTS}
    for _ in range(rounds):
        for name in names:
            for prompt, stats in measure(model, draft, name, length, tokens).items():
                rows[name, prompt].append(stats)
    for (name, prompt), answers in rows.items():
        ratios = [
            a.tokens_per_second / p.tokens_per_second for a, p in zip(answers, rows["plain", prompt], strict=True)
        ]
        last = answers[-1]
        click.echo(
            f"{prompt:5} {name:8} {median(a.tokens_per_second for a in answers):7.2f} tokens/s, "
            f"{median(ratios):.3f} of plain ({min(ratios):.3f} to {max(ratios):.3f}), "
            f"{last.tokens_per_pass:.2f} tokens a pass, {last.accepted_tokens} of {last.drafted_tokens} accepted, "
            f"{last.completion_tokens} tokens"
        )


if __name__ == "__main__":
    main()
