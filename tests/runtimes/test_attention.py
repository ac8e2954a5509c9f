"""The kernels' attention against float64, and against itself with other numbers of rows, pieces and cells."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.runtimes.kernels import library, paths

pytestmark = pytest.mark.skipif(library() is None, reason="the kernels weren't built")
SINGLE = 3e-6  # what single precision makes of sums over 256 numbers
EVERY_PATH = pytest.mark.parametrize("path", paths())


class Case:
    """Random queries (heads, rows, size), keys and values (key heads, cells, size), and who sees what."""

    def __init__(
        self, rows: int, heads: int, key_heads: int, cells: int, size: int, seed: int = 0, value_size: int | None = None
    ) -> None:
        rng = np.random.default_rng(seed)
        self.q = rng.normal(0, 2, (heads, rows, size)).astype(np.float32)
        sizes = (size, value_size or size)
        self.k, self.v = (rng.normal(0, 1, (key_heads, cells, n)).astype(np.float16) for n in sizes)
        self.mask = np.where(rng.random((rows, cells)) < 0.3, -np.inf, 0).astype(np.float16)
        self.mask[:, min(cells - 1, 40) : 80] = -np.inf  # chunks that nobody sees
        self.mask[0, 0] = 0
        self.scale = size**-0.5

    def attended(self, path: str, piece: int = 16) -> np.ndarray:
        """(rows, heads, size of values)."""
        (heads, rows, size), (key_heads, cells, value_size) = self.q.shape, self.v.shape
        found = np.full((rows, heads, value_size), 7, np.float32)
        arrays = [np.ascontiguousarray(a) for a in (self.q, self.k, self.v, self.mask)]
        numbers = [ctypes.c_int64(n) for n in (rows, heads, key_heads, cells, size, value_size)]
        library().edgespec_attend(  # type: ignore[union-attr]
            path.encode(), *(ctypes.c_void_p(a.ctypes.data) for a in arrays), *numbers, ctypes.c_float(self.scale),
            ctypes.c_int64(piece), ctypes.c_void_p(found.ctypes.data),
        )  # fmt: skip
        return found

    def exact(self) -> np.ndarray:
        group = len(self.q) // len(self.k)
        k, v = (np.repeat(a.astype(np.float64), group, 0) for a in (self.k, self.v))
        scores = self.q.astype(np.float64) @ k.transpose(0, 2, 1) * self.scale + self.mask.astype(np.float64)
        scores -= np.maximum(scores.max(-1, keepdims=True), -1e300)
        weights = np.exp(scores)
        total = weights.sum(-1, keepdims=True)
        return (np.divide(weights, total, out=np.zeros_like(weights), where=total > 0) @ v).transpose(1, 0, 2)

    def only(self, rows: slice) -> Case:
        part = object.__new__(Case)
        part.q, part.k, part.v, part.mask, part.scale = self.q[:, rows], self.k, self.v, self.mask[rows], self.scale
        return part


@EVERY_PATH
@pytest.mark.parametrize(
    ("rows", "heads", "key_heads", "cells", "size"),
    [(1, 12, 2, 256, 128), (16, 9, 3, 512, 64), (5, 4, 4, 33, 80), (2, 8, 1, 300, 256), (33, 2, 1, 31, 16)],
)
def test_against_float64(path: str, rows: int, heads: int, key_heads: int, cells: int, size: int) -> None:
    case = Case(rows, heads, key_heads, cells, size)
    np.testing.assert_allclose(case.attended(path), case.exact(), rtol=0, atol=SINGLE)


@EVERY_PATH
@given(
    st.integers(1, 20), st.integers(1, 4), st.integers(1, 3), st.integers(1, 200), st.integers(1, 8), st.integers(1, 16)
)
@settings(max_examples=40, deadline=None)
def test_any_shape(path: str, rows: int, group: int, key_heads: int, cells: int, sixteens: int, piece: int) -> None:
    case = Case(rows, group * key_heads, key_heads, cells, 16 * sixteens, seed=cells)
    found = case.attended(path, piece)
    np.testing.assert_allclose(found, case.exact(), rtol=0, atol=SINGLE)
    np.testing.assert_array_equal(found, case.attended(path))


@EVERY_PATH
def test_a_row_is_the_same_to_the_last_bit_however_many_there_are(path: str) -> None:
    case = Case(17, 6, 2, 384, 64)
    together = case.attended(path)
    for row in range(17):
        np.testing.assert_array_equal(case.only(slice(row, row + 1)).attended(path)[0], together[row])


@EVERY_PATH
def test_keys_and_values_of_different_sizes(path: str) -> None:
    case = Case(3, 4, 2, 70, 192, value_size=128)
    np.testing.assert_allclose(case.attended(path), case.exact(), rtol=0, atol=SINGLE)


@EVERY_PATH
def test_cells_that_nobody_sees_change_nothing(path: str) -> None:
    """llama.cpp makes the cache's visible part longer in steps; what is new is masked."""
    case = Case(4, 6, 2, 96, 64)
    before = case.attended(path)
    more = np.random.default_rng(5).normal(0, 9, (2, 160, 64)).astype(np.float16)
    case.k, case.v = np.concatenate([case.k, more], 1), np.concatenate([case.v, more], 1)
    case.mask = np.concatenate([case.mask, np.full((4, 160), -np.inf, np.float16)], 1)
    np.testing.assert_array_equal(case.attended(path), before)


@EVERY_PATH
def test_far_apart_scores_and_rows_that_see_nothing(path: str) -> None:
    case = Case(3, 2, 1, 128, 32)
    case.q[:, 0] *= 1000  # one token takes all the weight
    case.mask[1] = -np.inf
    found = case.attended(path)
    np.testing.assert_allclose(found, case.exact(), rtol=0, atol=1e-5)
    assert (found[1] == 0).all()
