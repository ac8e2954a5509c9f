"""t(n) with our kernels and with llama.cpp's own, both models in one process, pass after pass.

    python -m scripts.bench_kernels MODEL [--context 512] [--rounds 5] [--sizes 1,2,4,8,16] [--prefill 512]

Prints medians in milliseconds and their ratio, and what share of the machine's limits they reach: bytes of weights read
in a second against a measured read bandwidth, multiplications against a measured peak of the path's instructions.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import click
import numpy as np

from edgespec.bench.machine import machine_facts
from edgespec.runtimes import Runtime, RuntimeOptions, TokenTree, Work, runtime_class
from edgespec.runtimes.kernels import kernels


class _Timed:
    """A runtime with a sequence of so many cached tokens."""

    def __init__(self, runtime: Runtime, tokens: list[int], context: int) -> None:
        self.runtime, self.tokens, self.context = runtime, tokens, context
        self.sequence = runtime.open()
        runtime.prefill(self.sequence, tokens[:context])

    def step(self, n: int) -> float:
        started = time.perf_counter()
        self.runtime.forward([Work(self.sequence, TokenTree.chain(self.tokens[-n:]))])
        seconds = time.perf_counter() - started
        self.runtime.truncate(self.sequence, self.context)
        return seconds

    def prefill(self, n: int) -> float:
        other = self.runtime.open()
        started = time.perf_counter()
        self.runtime.prefill(other, self.tokens[:n])
        seconds = time.perf_counter() - started
        self.runtime.release(other)
        return seconds


def read_bandwidth(threads: int, size: int = 1 << 30) -> float:
    """Bytes a second that so many threads sum up together; numpy releases the lock while it does."""
    from concurrent.futures import ThreadPoolExecutor

    data = np.ones(size // 8, np.int64)
    parts = np.array_split(data, threads)
    with ThreadPoolExecutor(threads) as pool:
        seconds = []
        for _ in range(5):
            started = time.perf_counter()
            list(pool.map(np.sum, parts))
            seconds.append(time.perf_counter() - started)
    return size / min(seconds)


@click.command(help=__doc__)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--context", default=512, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--sizes", default="1,2,3,4,6,8,16", show_default=True)
@click.option("--prefill", default=512, show_default=True, help="Tokens of a timed prefill; 0: none.")
def main(model: Path, context: int, rounds: int, sizes: str, prefill: int) -> None:
    wanted = [int(n) for n in sizes.split(",")]
    options = RuntimeOptions(ctx=max(context, prefill) + max(wanted), sequences=2, branches=1)
    click.echo(f"{model.name}; {machine_facts()['summary']}; kernels: {kernels().path or kernels().reason}")
    runtimes = [runtime_class(name).load(model, options) for name in ("llamacpp", "llamacpp-stock")]
    count = context + max(max(wanted), prefill)
    tokens = [int(t) for t in np.linspace(100, runtimes[0].vocabulary.size - 100, count)]
    timed = [_Timed(runtime, tokens, context) for runtime in runtimes]
    times: dict[int, list[list[float]]] = {n: [[], []] for n in wanted}
    for round_ in range(-1, rounds):
        for n in wanted:
            for i in (0, 1) if round_ % 2 else (1, 0):
                seconds = timed[i].step(n)
                times[n][i] += [seconds] if round_ >= 0 else []
    weights = sum(tensor.nbytes for tensor in _matrices(model))
    click.echo(f"{'n':>5} {'ours':>9} {'stock':>9} {'ratio':>7}   bytes/s of weights")
    for n, (ours, stock) in times.items():
        a, b = median(ours), median(stock)
        click.echo(f"{n:>5} {a * 1e3:>7.1f}ms {b * 1e3:>7.1f}ms {a / b:>7.2f}   {weights / a / 1e9:.1f} GB/s")
    for _ in range(2 if prefill else 0):
        a, b = (one.prefill(prefill) for one in timed)
        click.echo(f"prefill of {prefill}: {a:.2f} s, {b:.2f} s, {a / b:.2f}")
    bandwidth = read_bandwidth(machine_facts()["threads"])
    click.echo(f"read bandwidth: {bandwidth / 1e9:.1f} GB/s, so t(1) takes at least {weights / bandwidth * 1e3:.0f} ms")


def _matrices(model: Path) -> list:  # type: ignore[type-arg]
    from edgespec.models.gguf_check import checked_header

    return [t for t in checked_header(model).tensors if len(t.shape) > 1]


if __name__ == "__main__":
    main()
