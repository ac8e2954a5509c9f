"""Products of our kernels against float64, against ggml's own, and against themselves with other numbers of rows."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.runtimes.kernels import TYPES, library, paths
from edgespec.runtimes.llama_library import ggml

pytestmark = pytest.mark.skipif(library() is None, reason="the kernels weren't built")

BLOCKS = {  # weights and bytes of a block, and where its half-precision numbers lie
    "Q4_0": (32, 18, (0,)), "Q4_1": (32, 20, (0, 2)), "Q5_0": (32, 22, (0,)), "Q5_1": (32, 24, (0, 2)),
    "Q8_0": (32, 34, (0,)), "Q4_K": (256, 144, (0, 2)), "Q5_K": (256, 176, (0, 2)), "Q6_K": (256, 210, (208,)),
}  # fmt: skip
EVERY_TYPE = pytest.mark.parametrize("kind", sorted(TYPES))
EVERY_PATH = pytest.mark.parametrize("path", paths())


def random_weights(kind: str, outputs: int, inputs: int, seed: int = 0) -> np.ndarray:
    """Any bits are weights, as long as the half-precision numbers are ordinary. Bytes (outputs, bytes of a row)."""
    rng = np.random.default_rng(seed)
    weights, size, halves = BLOCKS[kind]
    blocks = rng.integers(0, 256, (outputs, inputs // weights, size), np.uint8)
    for place in halves:
        values = rng.normal(0, 0.02, blocks.shape[:2]).astype("<f2")
        blocks[:, :, place : place + 2] = values[..., None].view(np.uint8)
    return blocks.reshape(outputs, -1)


def as_floats(kind: str, weights: np.ndarray) -> np.ndarray:
    return dequantize(weights, GGMLQuantizationType[kind])


def address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class Tiles:
    """A matrix in the order of a path."""

    def __init__(self, kind: str, weights: np.ndarray, inputs: int, path: str) -> None:
        ours = library()
        assert ours is not None
        self._library: Any = ours
        self._shape = (ctypes.c_int64(inputs), ctypes.c_int64(len(weights)))
        self._kind, self._path = ctypes.c_int(TYPES[kind]), path.encode()
        self.inputs, self.outputs = inputs, len(weights)
        ours.edgespec_matrix_bytes.restype = ctypes.c_size_t
        self.size = ours.edgespec_matrix_bytes(self._kind, *self._shape, self._path)
        self._tiles = np.full(self.size + 64, 0xA5, np.uint8)
        ours.edgespec_repack(self._kind, address(weights), *self._shape, self._path, address(self._tiles))
        assert (self._tiles[self.size :] == 0xA5).all()

    def unpacked(self) -> np.ndarray:
        floats = np.empty((self.outputs, self.inputs), np.float32)
        self._library.edgespec_unpack(self._kind, address(self._tiles), *self._shape, self._path, address(floats))
        return floats

    def product(self, rows: np.ndarray) -> np.ndarray:
        rows = np.ascontiguousarray(rows, np.float32)
        result = np.full((len(rows) + 1, self.outputs), 7.0, np.float32)
        count = ctypes.c_int64(len(rows))
        self._library.edgespec_multiply(
            self._kind, address(self._tiles), *self._shape, self._path, address(rows), count, address(result)
        )
        assert (result[-1] == 7.0).all()
        return result[:-1]


def quantized(rows: np.ndarray) -> np.ndarray:
    """Rows as the kernels see them, in float64: integers times the scale of 32."""
    blocks = rows.astype(np.float32).reshape(len(rows), -1, 32)
    scale = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    return (np.rint(blocks * inverse).astype(np.float64) * scale).reshape(rows.shape)


def random_rows(count: int, inputs: int, seed: int = 1) -> np.ndarray:
    """Hidden states have a few numbers that are much larger than the rest."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 1, (count, inputs))
    rows[:, rng.integers(0, inputs, 3)] *= 30
    return rows.astype(np.float32)


@EVERY_TYPE
@EVERY_PATH
def test_rearranged_weights_are_the_files(kind: str, path: str) -> None:
    weights = random_weights(kind, 21, 512)
    np.testing.assert_array_equal(Tiles(kind, weights, 512, path).unpacked(), as_floats(kind, weights))


@EVERY_TYPE
@EVERY_PATH
@pytest.mark.parametrize(("outputs", "inputs", "count"), [(1, 256, 1), (16, 256, 33), (37, 1536, 5), (40, 768, 16)])
def test_products_against_float64(kind: str, path: str, outputs: int, inputs: int, count: int) -> None:
    weights, rows = random_weights(kind, outputs, inputs), random_rows(count, inputs)
    exact = quantized(rows) @ as_floats(kind, weights).astype(np.float64).T
    size = np.abs(quantized(rows)) @ np.abs(as_floats(kind, weights).astype(np.float64)).T
    assert (np.abs(Tiles(kind, weights, inputs, path).product(rows) - exact) <= 1e-6 * size).all()


@EVERY_TYPE
@EVERY_PATH
def test_a_row_is_the_same_to_the_last_bit_however_many_there_are(kind: str, path: str) -> None:
    tiles, rows = Tiles(kind, random_weights(kind, 19, 512), 512, path), random_rows(70, 512)
    alone = np.concatenate([tiles.product(row[None]) for row in rows])
    for count in (*range(2, 18), 33, 70):  # 70: more than one call takes
        np.testing.assert_array_equal(tiles.product(rows[:count]), alone[:count])
        np.testing.assert_array_equal(tiles.product(rows[-count:]), alone[-count:])


@EVERY_TYPE
@EVERY_PATH
def test_every_path_gives_what_plain_code_gives(kind: str, path: str) -> None:
    weights, rows = random_weights(kind, 35, 1024), random_rows(7, 1024)
    plain = Tiles(kind, weights, 1024, "plain").product(rows)
    np.testing.assert_array_equal(Tiles(kind, weights, 1024, path).product(rows), plain)


@EVERY_PATH
@given(st.sampled_from(sorted(TYPES)), st.integers(1, 40), st.integers(1, 4), st.integers(1, 20), st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_any_shape(path: str, kind: str, outputs: int, blocks: int, count: int, seed: int) -> None:
    inputs = blocks * BLOCKS[kind][0]
    weights, rows = random_weights(kind, outputs, inputs, seed), random_rows(count, inputs, seed)
    found = Tiles(kind, weights, inputs, path).product(rows)
    np.testing.assert_array_equal(found, Tiles(kind, weights, inputs, "plain").product(rows))
    exact = quantized(rows) @ as_floats(kind, weights).astype(np.float64).T
    size = np.abs(quantized(rows)) @ np.abs(as_floats(kind, weights).astype(np.float64)).T
    assert (np.abs(found - exact) <= 1e-6 * size).all()


@EVERY_TYPE
@pytest.mark.parametrize("bits", [0x00, 0xFF])
def test_the_largest_integers_do_not_overflow(kind: str, bits: int) -> None:
    """All bits the same, scales as large as they can be, and rows of +-127 times their scale: few of them, and many."""
    weights = random_weights(kind, 8, 256)
    weights[:] = bits
    blocks = weights.reshape(8, -1, BLOCKS[kind][1])
    if kind == "Q6_K":
        blocks[:, :, 192:208] = 0x80
    elif kind in ("Q4_K", "Q5_K"):
        blocks[:, :, 4:16] = 0xFF
    for place in BLOCKS[kind][2]:
        blocks[:, :, place : place + 2] = np.array([0.01], "<f2").view(np.uint8)
    rows = np.stack([np.ones(256), -np.ones(256), np.tile([1, -1], 128)]).astype(np.float32)
    rows = np.concatenate([rows, rows, rows])
    exact = quantized(rows) @ as_floats(kind, weights).astype(np.float64).T
    for path in paths():
        tiles = Tiles(kind, weights, 256, path)
        for count in (1, 3, 9):
            np.testing.assert_allclose(tiles.product(rows[:count]), exact[:count], rtol=2e-6, atol=1e-3)


@EVERY_TYPE
@EVERY_PATH
def test_rows_of_zeros_tiny_numbers_and_no_numbers(kind: str, path: str) -> None:
    tiles = Tiles(kind, random_weights(kind, 8, 256), 256, path)
    rows = np.zeros((6, 256), np.float32)
    rows[1] = 1e-42  # too small to have an inverse
    rows[2, 3], rows[3, 140], rows[4, 0], rows[5] = np.nan, np.inf, -np.inf, 1e35
    for found in (tiles.product(rows), np.concatenate([tiles.product(row[None]) for row in rows])):
        assert (found[:2] == 0).all()
        assert np.isnan(found[2:5]).all()
        assert not np.isnan(found[5]).any()


def ggml_product(kind: str, weights: np.ndarray, inputs: int, rows: np.ndarray) -> np.ndarray:
    """What ggml's CPU code computes."""
    theirs: Any = ggml()

    class InitParams(ctypes.Structure):
        _fields_ = (("size", ctypes.c_size_t), ("memory", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))

    pointer, number = ctypes.c_void_p, ctypes.c_int64

    def call(name: str, result: Any, arguments: list[Any], *values: Any) -> Any:
        function = getattr(theirs, name)
        function.restype, function.argtypes = result, arguments
        return function(*values)

    context = call("ggml_init", pointer, [InitParams], InitParams(64 << 20, None, False))
    new = [pointer, ctypes.c_int, number, number]
    left = call("ggml_new_tensor_2d", pointer, new, context, TYPES[kind], inputs, len(weights))
    right = call("ggml_new_tensor_2d", pointer, new, context, 0, inputs, len(rows))
    for tensor, content in ((left, weights), (right, np.ascontiguousarray(rows, np.float32))):
        ctypes.memmove(call("ggml_get_data", pointer, [pointer], tensor), content.ctypes.data, content.nbytes)
    result = call("ggml_mul_mat", pointer, [pointer] * 3, context, left, right)
    graph = call("ggml_new_graph", pointer, [pointer], context)
    call("ggml_build_forward_expand", None, [pointer, pointer], graph, result)
    call("ggml_graph_compute_with_ctx", ctypes.c_int, [pointer, pointer, ctypes.c_int], context, graph, 2)
    found = np.empty((len(rows), len(weights)), np.float32)
    ctypes.memmove(found.ctypes.data, call("ggml_get_data", pointer, [pointer], result), found.nbytes)
    call("ggml_free", None, [pointer], context)
    return found


@EVERY_TYPE
@EVERY_PATH
@pytest.mark.parametrize("count", [1, 4, 16])
def test_errors_are_no_larger_than_ggmls(kind: str, path: str, count: int) -> None:
    weights, rows = random_weights(kind, 256, 1536), random_rows(count, 1536)
    exact = rows.astype(np.float64) @ as_floats(kind, weights).astype(np.float64).T
    ours = np.sqrt(np.mean((Tiles(kind, weights, 1536, path).product(rows) - exact) ** 2))
    theirs = np.sqrt(np.mean((ggml_product(kind, weights, 1536, rows) - exact) ** 2))
    assert ours <= 1.02 * theirs
