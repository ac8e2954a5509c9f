"""Whole models on our kernels: the same bits for any number of tokens, several at once, and memory that comes back."""

from __future__ import annotations

import gc
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import psutil
import pytest

from edgespec.convert.agreement import logits_after
from edgespec.runtimes import Runtime, RuntimeOptions, runtime_class
from edgespec.runtimes.kernels import kernels

pytestmark = pytest.mark.skipif(kernels().path is None, reason=f"no kernels: {kernels().reason}")

TOKENS = [504, 2365, 6354, 16438, 27003, 690, 260, 23790, 2767, 30, 1385, 338, 253, 1123, 42, 17]


def load(path: Path, name: str = "llamacpp") -> Runtime:
    return runtime_class(name).load(path, RuntimeOptions(ctx=64, branches=1))


def logits(runtime: Runtime, size: int = len(TOKENS)) -> np.ndarray:
    """Float32 (tokens, vocabulary), computed in passes of one size."""
    return np.stack(list(logits_after(runtime, TOKENS, size)))


def test_a_pass_over_any_number_of_tokens_gives_the_same_bits(smollm: Path) -> None:
    with closing(load(smollm)) as runtime:
        alone = logits(runtime, 1)
        for size in range(2, 17):
            np.testing.assert_array_equal(logits(runtime, size), alone)


def test_models_loaded_at_once_do_not_disturb_each_other(smollm: Path) -> None:
    with closing(load(smollm)) as runtime:
        ours = logits(runtime)
    with closing(load(smollm, "llamacpp-stock")) as runtime:
        theirs = logits(runtime)
    assert not np.array_equal(ours, theirs)  # or the test would show nothing
    with ExitStack() as stack:
        names = ["llamacpp", "llamacpp-stock", "llamacpp"]
        runtimes = [stack.enter_context(closing(load(smollm, name))) for name in names]
        found: list[list[np.ndarray]] = [[] for _ in names]

        def work(index: int) -> None:
            found[index] += [logits(runtimes[index]) for _ in range(3)]

        threads = [threading.Thread(target=work, args=(index,)) for index in range(len(names))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name, rows in zip(names, found, strict=True):
        assert len(rows) == 3
        for row in rows:
            np.testing.assert_array_equal(row, ours if name == "llamacpp" else theirs)


def test_loading_and_freeing_again_and_again_takes_no_more_memory(smollm: Path) -> None:
    process, seen = psutil.Process(), []
    for _ in range(20):
        with closing(load(smollm)) as runtime:
            logits(runtime)
        gc.collect()
        seen.append(process.memory_info().rss >> 20)
    assert max(seen[10:]) - seen[4] < 20, seen  # MiB; the weights are 92
