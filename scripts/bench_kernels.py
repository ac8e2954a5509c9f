"""t(n) with our kernels and with llama.cpp's own, both models in one process, pass after pass.

    python -m scripts.bench_kernels MODEL [--context 512] [--rounds 5] [--sizes 1,2,4,8,16] [--prefill 512]

Prints medians in milliseconds and their ratio; bytes of weights read in a second, against the read bandwidth that numpy
reaches; and multiplications in a second, against those of a matrix that stays in the cache.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import click
import numpy as np

from edgespec.bench.machine import machine_facts
from edgespec.runtimes import Runtime, RuntimeOptions, TokenTree, Work, runtime_class
from edgespec.runtimes.kernels import TYPES, kernels, library


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


def _fastest(threads: int, work: Callable[[int], object], times: int) -> float:
    """Seconds that so many threads take at best, each with its own part; the work must release Python's lock."""
    with ThreadPoolExecutor(threads) as pool:
        seconds = []
        for _ in range(times):
            started = time.perf_counter()
            list(pool.map(work, range(threads)))
            seconds.append(time.perf_counter() - started)
    return min(seconds)


def read_bandwidth(threads: int, size: int = 1 << 30) -> float:
    """Bytes a second that so many threads sum up together."""
    parts = np.array_split(np.ones(size // 8, np.int64), threads)
    return size / _fastest(threads, lambda i: np.sum(parts[i]), 5)


def products_in_cache(threads: int, rows: int = 64, inputs: int = 1024, outputs: int = 1024) -> float:
    """Multiplications a second of our kernels with Q4_K weights that never leave the cache.

    So many in one call that what goes before them, such as quantizing the rows, hardly counts.
    """
    ours, path = library(), kernels().path
    assert ours is not None
    assert path is not None
    shape = (ctypes.c_int64(inputs), ctypes.c_int64(outputs))
    ours.edgespec_matrix_bytes.restype = ctypes.c_size_t
    size = ours.edgespec_matrix_bytes(TYPES["Q4_K"], *shape, path.encode())
    repeats = 20

    def work(_: int) -> None:
        tiles, x = np.full(size, 17, np.uint8), np.ones((rows, inputs), np.float32)
        y = np.zeros((rows, outputs), np.float32)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (tiles, x, y)]
        for _ in range(repeats):
            ours.edgespec_multiply(
                TYPES["Q4_K"], pointers[0], *shape, path.encode(), pointers[1], ctypes.c_int64(rows), pointers[2]
            )

    return threads * repeats * rows * inputs * outputs / _fastest(threads, work, 5)


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
    weights, numbers = (sum(column) for column in zip(*_matrices(model), strict=True))
    click.echo(f"{'n':>5} {'ours':>9} {'stock':>9} {'ratio':>7} {'t(n)/t(1)':>10} {'weights':>12} {'products':>12}")
    first = median(times[wanted[0]][0])
    for n, (ours, stock) in times.items():
        a, b = median(ours), median(stock)
        click.echo(
            f"{n:>5} {a * 1e3:>7.1f}ms {b * 1e3:>7.1f}ms {a / b:>7.2f} {a / first:>10.2f} "
            f"{weights / a / 1e9:>8.1f} GB/s {n * numbers / a / 1e9:>7.0f} G/s"
        )
    for _ in range(2 if prefill else 0):
        a, b = (one.prefill(prefill) for one in timed)
        click.echo(f"prefill of {prefill}: {a:.2f} s, {b:.2f} s, {a / b:.2f}")
    threads = machine_facts()["threads"]
    bandwidth = read_bandwidth(threads)
    click.echo(f"read bandwidth: {bandwidth / 1e9:.1f} GB/s, so t(1) takes at least {weights / bandwidth * 1e3:.0f} ms")
    if kernels().path is not None:
        click.echo(f"our products with weights in the cache: {products_in_cache(threads) / 1e9:.0f} G/s")


def _matrices(model: Path) -> list[tuple[int, int]]:
    """Bytes and numbers of each matrix that a pass multiplies with."""
    from edgespec.models.gguf_check import checked_header

    tensors = checked_header(model).tensors
    tied = not any(tensor.name == "output.weight" for tensor in tensors)
    return [(t.nbytes, t.weights) for t in tensors if len(t.shape) > 1 and (tied or t.name != "token_embd.weight")]


if __name__ == "__main__":
    main()
