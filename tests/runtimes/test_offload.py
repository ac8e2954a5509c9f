from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.models.gguf import read_header
from edgespec.runtimes import RuntimeOptions
from edgespec.runtimes.devices import Device
from edgespec.runtimes.llama_library import LOG
from edgespec.runtimes.llamacpp import LlamaCpp
from edgespec.runtimes.offload import cache_bytes, layers_that_fit

MIB = 1 << 20


def gpu(free: int) -> Device:
    return Device("CUDA0", "a GPU", "gpu", free, free)


def test_the_cache_is_two_vectors_for_each_layer_head_and_token(tiny: Path) -> None:
    # 3 layers, 2 KV heads of 16, keys and values, 1000 tokens, 2 bytes
    assert cache_bytes(read_header(tiny), RuntimeOptions(ctx=1000)) == 3 * 2 * 16 * 2 * 1000 * 2
    assert (
        cache_bytes(read_header(tiny), RuntimeOptions(ctx=1000, cache_type="q8_0")) == 3 * 2 * 16 * 2 * 1000 * 34 // 32
    )


def test_the_cache_is_what_llama_cpp_allocates(tiny: Path) -> None:
    LOG.lines.clear()
    options = RuntimeOptions(ctx=1024, sequences=2)
    LlamaCpp.load(tiny, options).close()
    line = next(text for _, text in LOG.lines if "KV buffer size" in text)
    said = float(line.split("=")[1].split()[0]) * MIB
    assert cache_bytes(read_header(tiny), options) == pytest.approx(said, rel=0.01)


def test_no_gpu_means_no_layers(tiny: Path) -> None:
    cpu = Device("CPU", "a CPU", "cpu", 10**12, 10**12)
    assert layers_that_fit(read_header(tiny), RuntimeOptions(), [cpu]) == 0


def test_a_large_gpu_takes_every_layer_and_the_output(tiny: Path) -> None:
    assert layers_that_fit(read_header(tiny), RuntimeOptions(), [gpu(10**10)]) == 4


def test_a_small_gpu_takes_what_fits(tiny: Path) -> None:
    header, options = read_header(tiny), RuntimeOptions(ctx=1024)
    output = 1024 * 64 * 2 + 64 * 4  # the output matrix in F16, its norm in F32
    layer = sum(t.nbytes for t in header.tensors if t.name.startswith("blk.0.")) + cache_bytes(header, options) // 3
    for layers in range(3):
        free = 512 * MIB + output + layers * layer
        assert layers_that_fit(header, options, [gpu(free)]) == 1 + layers
    assert layers_that_fit(header, options, [gpu(512 * MIB)]) == 0


def test_two_gpus_hold_more_than_one(tiny: Path) -> None:
    header, half = read_header(tiny), 512 * MIB + 200_000
    assert layers_that_fit(header, RuntimeOptions(ctx=64), [gpu(half)]) < layers_that_fit(
        header, RuntimeOptions(ctx=64), [gpu(half)] * 2
    )
