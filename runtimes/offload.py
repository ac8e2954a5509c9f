"""How many layers fit on the GPUs that are there, worked out before anything is loaded."""

from __future__ import annotations

import re
from collections import defaultdict

from edgespec.models.errors import RuntimeFailure, UsageError
from edgespec.models.gguf import TENSOR_TYPES, GGUFHeader, TensorType

from .base import RuntimeOptions
from .devices import Device

_KEPT_FREE = 512 << 20
"""Bytes of each GPU left to compute buffers and to the desktop."""


def layers_that_fit(header: GGUFHeader, options: RuntimeOptions, devices: list[Device]) -> int:
    """Layers, counted as llama.cpp does (the output matrix is the last one), that the free GPU memory holds.

    llama.cpp offloads the last layers first. An estimate of weights and KV cache only; 0 without a GPU.
    """
    room = sum(max(0, d.memory_free - _KEPT_FREE) for d in devices if d.kind in ("gpu", "integrated gpu"))
    weights: defaultdict[int, int] = defaultdict(int)
    output = 0
    for tensor in header.tensors:
        block = re.match(r"blk\.(\d+)\.", tensor.name)
        if block:
            weights[int(block[1])] += tensor.nbytes
        elif tensor.name.startswith("output"):
            output += tensor.nbytes
    layers = 0
    cache = cache_bytes(header, options) // max(1, len(weights))
    for need in (output, *(weights[i] + cache for i in sorted(weights, reverse=True))):
        room -= need
        if room < 0:
            break
        layers += 1
    return layers


def cache_bytes(header: GGUFHeader, options: RuntimeOptions) -> int:
    """Bytes of the whole KV cache: 2 vectors for each layer, KV head and token.

    Models with a window or without attention in some layers need less; this is the most.
    """
    heads = _most(header.hyperparameter("attention.head_count")) or 1
    kv_heads = _most(header.hyperparameter("attention.head_count_kv")) or heads
    key, value = _head_widths(header)
    kind = _cache_type(options)
    numbers = _most(header.hyperparameter("block_count")) * kv_heads * (key + value) * options.ctx * options.sequences
    return numbers * kind.size // kind.block


def check_cache(header: GGUFHeader, options: RuntimeOptions, devices: list[Device]) -> None:
    """Refuse a KV cache that can't be: its type must divide the heads, and its size the memory that is there.

    The system would grant the memory at first and kill the process when it is used.

    Raises:
        UsageError: heads of a width that the cache type's blocks don't divide.
        RuntimeFailure: more memory than there is.
    """
    block = _cache_type(options).block
    for width in _head_widths(header):
        if width % block:
            raise UsageError(
                f"cache type {options.cache_type!r} stores blocks of {block} numbers, which don't divide this model's "
                f"heads of {width}; choose f16 or bf16"
            )
    size, free = cache_bytes(header, options), sum(device.memory_free for device in devices)
    if size > free:
        raise RuntimeFailure(
            f"a context of {options.ctx} tokens needs a KV cache of {size / 2**30:.1f} GiB and {free / 2**30:.1f} GiB "
            "are free; choose a smaller --ctx"
        )


def _head_widths(header: GGUFHeader) -> tuple[int, int]:
    """Of keys and values."""
    heads = _most(header.hyperparameter("attention.head_count")) or 1
    width = _most(header.hyperparameter("embedding_length")) // heads
    key = _most(header.hyperparameter("attention.key_length")) or width
    return key, _most(header.hyperparameter("attention.value_length")) or width


def _cache_type(options: RuntimeOptions) -> TensorType:
    return next(t for t in TENSOR_TYPES.values() if t.name.lower() == options.cache_type)


def _most(value: object) -> int:
    """A hyperparameter that may be one number or one for each layer; 0 where there is none."""
    if value is None:
        return 0
    try:
        return int(value if isinstance(value, int) else max(value))  # type: ignore[call-overload]
    except (TypeError, ValueError):  # text, or an empty array
        return 0
