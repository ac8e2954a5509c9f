"""Reads the header of a GGUF file without trusting it.

The format is described in ggml's `docs/gguf.md`. Nothing here allocates by a count that the file claims: every
length is held against the bytes that are left, so a damaged or hostile file ends in `ModelFileError`, not in a
crash or in exhausted memory. Weights are never read.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import stat
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from .errors import ModelFileError

MAX_DIMENSIONS = 4
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 20
DEFAULT_ALIGNMENT = 32

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: dict[int, str] = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorType:
    """How a ggml type stores weights: `block` weights in `size` bytes."""

    name: str
    block: int
    size: int


# ggml.h, enum ggml_type, with the block sizes of ggml-common.h. Types that ggml removed are absent.
TENSOR_TYPES: dict[int, TensorType] = {
    number: TensorType(name, block, size)
    for number, name, block, size in [
        (0, "F32", 1, 4), (1, "F16", 1, 2), (2, "Q4_0", 32, 18), (3, "Q4_1", 32, 20), (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24), (8, "Q8_0", 32, 34), (9, "Q8_1", 32, 36), (10, "Q2_K", 256, 84), (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144), (13, "Q5_K", 256, 176), (14, "Q6_K", 256, 210), (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66), (17, "IQ2_XS", 256, 74), (18, "IQ3_XXS", 256, 98), (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18), (21, "IQ3_S", 256, 110), (22, "IQ2_S", 256, 82), (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1), (25, "I16", 1, 2), (26, "I32", 1, 4), (27, "I64", 1, 8), (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56), (30, "BF16", 1, 2), (34, "TQ1_0", 256, 54), (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17), (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18),
    ]
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorInfo:
    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int
    """Bytes from the start of the data section."""

    @property
    def weights(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.weights // self.type.block * self.type.size


class StringArray(Sequence[str]):
    """Strings of an array in the file, decoded when asked for (a vocabulary holds hundreds of thousands)."""

    def __init__(self, data: bytes, offsets: np.ndarray) -> None:
        self._data, self._offsets = data, offsets

    def __len__(self) -> int:
        return len(self._offsets)

    def raw(self, index: int) -> bytes:
        start = int(self._offsets[index])
        (length,) = struct.unpack_from("<Q", self._data, start)
        return self._data[start + 8 : start + 8 + length]

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.raw(range(len(self))[index]).decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self)} strings>"

    @property
    def digest(self) -> str:
        """SHA-256 of all strings and their lengths."""
        return hashlib.sha256(self._data).hexdigest()

    @property
    def longest(self) -> int:
        """Bytes of the longest string; 0 where there is none."""
        if not len(self):
            return 0
        ends = np.append(self._offsets[1:], len(self._data))
        return int((ends.astype(np.int64) - self._offsets).max()) - 8


@dataclass(frozen=True, slots=True, weakref_slot=True)
class GGUFHeader:
    """What a GGUF file says about itself.

    `metadata` holds Python scalars and strings, numpy arrays for numeric arrays and `StringArray` for string arrays.
    `digest` is the SHA-256 of the header and the file's size: all that decides how llama.cpp walks through the file.
    """

    path: Path
    version: int
    metadata: dict[str, Any]
    tensors: tuple[TensorInfo, ...]
    data_offset: int
    file_size: int
    digest: str

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    def hyperparameter(self, name: str, default: Any = None) -> Any:
        """The value of `{architecture}.{name}`."""
        return self.metadata.get(f"{self.architecture}.{name}", default)


def read_header(path: Path) -> GGUFHeader:
    """Read and check a GGUF header.

    Raises:
        ModelFileError: not a GGUF, truncated, or with counts, offsets or types that the file can't hold.
    """
    if path.is_dir():
        raise ModelFileError(f"{path}: is a folder without edgespec.json; name a GGUF file or a pack")
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a named pipe would wait for ever, a device never end
            raise ModelFileError(f"{path}: isn't a regular file; name a GGUF file or a pack")
        size = status.st_size
        with path.open("rb") as file:
            if size < 24:
                raise ModelFileError(f"{path}: not a GGUF file ({size} bytes; a header alone has 24)")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                return _Parser(path, view, size).parse()
    except FileNotFoundError:
        raise ModelFileError(f"{path}: no such file") from None
    except OSError as error:
        raise ModelFileError(f"{path}: can't be read: {error.strerror or error}") from None


class _Parser:
    def __init__(self, path: Path, view: mmap.mmap, size: int) -> None:
        self._path, self._view, self._size = path, view, size
        self._position = 0

    def parse(self) -> GGUFHeader:
        if self._take(4) != b"GGUF":
            raise self._error("not a GGUF file (it doesn't start with 'GGUF')")
        version = self._scalar(4)
        if version not in (2, 3):
            hint = " (a big-endian file?)" if version > 0xFFFF else ""
            raise self._error(f"GGUF version {version}{hint} isn't supported; versions 2 and 3 are")
        n_tensors, n_keys = self._scalar(10), self._scalar(10)
        if n_keys > MAX_KEYS or n_tensors > MAX_TENSORS:
            raise self._error(f"claims {n_keys} metadata keys and {n_tensors} tensors")
        metadata = self._metadata(n_keys)
        tensors = self._tensors(n_tensors)
        data_offset = self._data_offset(metadata)
        self._check_extents(tensors, data_offset, metadata)
        with memoryview(self._view) as view:
            digest = hashlib.sha256(view[:data_offset])
        digest.update(str(self._size).encode())
        return GGUFHeader(self._path, version, metadata, tensors, data_offset, self._size, digest.hexdigest())

    def _error(self, what: str) -> ModelFileError:
        return ModelFileError(f"{self._path}: {what}. Is the download complete?")

    def _need(self, count: int, what: str) -> None:
        if count > self._size - self._position:
            raise self._error(f"ends in the middle of {what} (at byte {self._position} of {self._size})")

    def _take(self, count: int, what: str = "its header") -> bytes:
        self._need(count, what)
        start = self._position
        self._position += count
        return self._view[start : self._position]

    def _scalar(self, kind: int) -> Any:
        dtype = np.dtype(_SCALARS[kind])
        return np.frombuffer(self._take(dtype.itemsize), dtype)[0].item()

    def _string(self, what: str) -> str:
        raw = self._take(self._scalar(10), what)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self._error(f"{what} isn't UTF-8 text") from None

    def _metadata(self, count: int) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        for _ in range(count):
            key = self._string("a metadata key")
            if not key or key in metadata:
                raise self._error(f"metadata key {key!r} is empty or stands twice")
            metadata[key] = self._value(self._scalar(4), key)
        return metadata

    def _value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self._string(f"metadata {key!r}")
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _SCALARS:
            raise self._error(f"metadata {key!r} has the unknown type {kind}")
        value = self._scalar(kind)
        return bool(value) if kind == _BOOL else value

    def _array(self, key: str) -> np.ndarray | StringArray:
        kind, count = self._scalar(4), self._scalar(10)
        what = f"metadata array {key!r}"
        if kind == _STRING:
            self._need(8 * count, what)
            return self._string_array(count, what)
        if kind not in _SCALARS:
            raise self._error(f"{what} has the unknown or nested type {kind}")
        dtype = np.dtype(_SCALARS[kind])
        return np.frombuffer(self._take(count * dtype.itemsize, what), dtype)

    def _string_array(self, count: int, what: str) -> StringArray:
        start, position, size = self._position, self._position, self._size
        offsets = np.empty(count, np.uint32 if size < 1 << 32 else np.int64)
        length_at = struct.Struct("<Q").unpack_from
        for i in range(count):
            offsets[i] = position - start
            if position + 8 > size:
                raise self._error(f"ends in the middle of {what}")
            position += 8 + length_at(self._view, position)[0]
            if position > size:
                raise self._error(f"ends in the middle of {what}")
        return StringArray(self._take(position - start), offsets)

    def _tensors(self, count: int) -> tuple[TensorInfo, ...]:
        tensors: dict[str, TensorInfo] = {}
        for _ in range(count):
            name = self._string("a tensor's name")
            if name in tensors:
                raise self._error(f"tensor {name!r} stands twice")
            n_dims = self._scalar(4)
            if not 1 <= n_dims <= MAX_DIMENSIONS:
                raise self._error(f"tensor {name!r} claims {n_dims} dimensions")
            shape = tuple(self._scalar(10) for _ in range(n_dims))
            kind, offset = self._scalar(4), self._scalar(10)
            if kind not in TENSOR_TYPES:
                raise self._error(f"tensor {name!r} has the unknown type {kind}")
            tensor_type = TENSOR_TYPES[kind]
            if 0 in shape or shape[0] % tensor_type.block:
                raise self._error(f"tensor {name!r}: a row of {shape[0]} can't be stored as {tensor_type.name}")
            tensors[name] = TensorInfo(name, shape, tensor_type, offset)
        return tuple(tensors.values())

    def _data_offset(self, metadata: dict[str, Any]) -> int:
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1) or alignment > 1 << 20:
            raise self._error(f"general.alignment is {alignment!r}, not a power of two")
        return -(-self._position // alignment) * alignment

    def _check_extents(self, tensors: tuple[TensorInfo, ...], data_offset: int, metadata: dict[str, Any]) -> None:
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        for tensor in tensors:
            if tensor.offset % alignment:
                raise self._error(f"tensor {tensor.name!r} isn't aligned to {alignment} bytes")
            if data_offset + tensor.offset + tensor.nbytes > self._size:
                raise self._error(f"tensor {tensor.name!r} lies beyond the end of the file")
