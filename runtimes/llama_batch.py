"""A llama_batch over numpy memory, filled again for each pass."""

from __future__ import annotations

import ctypes

import numpy as np

from .llama_library import llama


class Batch:
    """Room for `capacity` tokens of up to `max_ids` sequence ids each."""

    def __init__(self, capacity: int, max_ids: int) -> None:
        self._token = np.zeros(capacity, np.int32)
        self._position = np.zeros(capacity, np.int32)
        self._n_ids = np.zeros(capacity, np.int32)
        self._ids = np.zeros((capacity, max_ids), np.int32)
        self._id_rows = (self._ids.ctypes.data + np.arange(capacity) * self._ids.strides[0]).astype(np.uintp)
        self._output = np.zeros(capacity, np.int8)
        self.struct = self._pointed()
        self.clear()

    def _pointed(self) -> ctypes.Structure:
        library = llama()
        struct: ctypes.Structure = library.llama_batch()
        for name, array in (
            ("token", self._token), ("pos", self._position), ("n_seq_id", self._n_ids),
            ("seq_id", self._id_rows), ("logits", self._output),
        ):  # fmt: skip
            kind = dict(field[:2] for field in library.llama_batch._fields_)[name]
            setattr(struct, name, ctypes.cast(array.ctypes.data, kind))
        return struct

    def clear(self) -> None:
        self.count = self.outputs = 0
        self.struct.n_tokens = 0

    def add(self, token: int, position: int, ids: list[int], output: bool) -> None:
        i = self.count
        self._token[i], self._position[i], self._n_ids[i] = token, position, len(ids)
        self._ids[i, : len(ids)] = ids
        self._output[i] = output
        self.outputs += output
        self.count = self.struct.n_tokens = i + 1
