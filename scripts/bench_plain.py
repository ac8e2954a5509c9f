"""What our loop costs: plain decoding against the time inside llama.cpp, and against llama-cpp-python's own generation.

Both generate from the same file, prompt and thread count in one process, one after the other in each round; medians.

    python -m scripts.bench_plain MODEL... [--rounds 5] [--tokens 128]
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import click

from edgespec.bench.machine import machine_facts
from edgespec.loading import load
from edgespec.model import Model
from edgespec.runtimes.devices import default_threads

from .prompts import CHAT_PROMPT


class DecodeClock:
    """Sums up the time that a model spends inside llama.cpp's decode."""

    def __init__(self, model: Model) -> None:
        self.seconds = 0.0
        self._decode = model.runtime._decode  # type: ignore[attr-defined]
        model.runtime._decode = self._timed  # type: ignore[attr-defined]

    def _timed(self) -> None:
        started = time.perf_counter()
        self._decode()
        self.seconds += time.perf_counter() - started


def ours(model: Model, clock: DecodeClock, prompt: list[int], tokens: int, **sampling: Any) -> tuple[float, float]:
    """Tokens per second, and the share of time beyond llama.cpp's decode, of one answer."""
    started = inside = 0.0
    count = 0
    for event in model.generate(prompt, max_tokens=tokens, **sampling):
        count += len(event.tokens)
        if not started:  # the first token's pass is not counted: the prompt is prefilled before it
            started, inside, count = time.perf_counter(), clock.seconds, 0
    seconds, inside = time.perf_counter() - started, clock.seconds - inside
    return count / seconds, seconds / inside - 1


def theirs(llama: Any, prompt: list[int], tokens: int) -> float:
    """Tokens per second of llama-cpp-python's own streamed completion, greedy."""
    started, count = 0.0, -1
    for _ in llama.create_completion(prompt, max_tokens=tokens, temperature=0.0, stream=True):
        count += 1
        started = started or time.perf_counter()
    # the last chunk only says why the answer ended
    return (count - 1) / (time.perf_counter() - started)


def run(path: Path, rounds: int, tokens: int) -> None:
    import llama_cpp

    threads = default_threads()
    peer = llama_cpp.Llama(str(path), n_ctx=1024, n_threads=threads, n_threads_batch=threads, verbose=False)
    with load(path, strategy="plain", ctx=1024) as model:
        clock = DecodeClock(model)
        assert model.template is not None
        text = model.template.render([{"role": "user", "content": CHAT_PROMPT}])
        prompt = model.runtime.vocabulary.encode(text, special=True, add_bos=True)
        ratios, overheads, sampled, speeds = [], [], [], []
        for _ in range(rounds):
            speed, overhead = ours(model, clock, prompt, tokens)
            peer.reset()
            other = theirs(peer, prompt, tokens)
            overheads.append(overhead)
            sampled.append(ours(model, clock, prompt, tokens, temperature=0.7, top_k=40, top_p=0.95, seed=1)[1])
            speeds.append(speed)
            ratios.append(speed / other)
    click.echo(
        f"{path.name}: {median(speeds):.1f} tokens/s; loop's overhead over decode {median(overheads):.1%} greedy, "
        f"{median(sampled):.1%} sampled; speed against llama-cpp-python {median(ratios):.3f} "
        f"({min(ratios):.3f} to {max(ratios):.3f} in {rounds} rounds)"
    )


@click.command(help=__doc__)
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--rounds", default=5)
@click.option("--tokens", default=128)
def main(models: tuple[Path, ...], rounds: int, tokens: int) -> None:
    click.echo(machine_facts()["summary"])
    for path in models:
        run(path, rounds, tokens)


if __name__ == "__main__":
    main()
