"""The GGUF reader: right about honest files, and never more than a `ModelFileError` away from a hostile one."""

from __future__ import annotations

import contextlib
import math
import os
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.models.errors import ModelFileError
from edgespec.models.gguf import TENSOR_TYPES, GGUFHeader, StringArray, read_header

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", U64: "Q", I64: "q", F64: "d"}


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str | bytes, kind: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + payload


def number(key: str, kind: int, value: float) -> bytes:
    return entry(key, kind, struct.pack("<" + FORMATS[kind], value))


def array(key: str, kind: int, count: int, payload: bytes) -> bytes:
    return entry(key, ARRAY, struct.pack("<IQ", kind, count) + payload)


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0, n_dims: int | None = None) -> bytes:
    head = text(name) + struct.pack("<I", len(shape) if n_dims is None else n_dims)
    return head + struct.pack(f"<{len(shape)}QIQ", *shape, kind, offset)


def build(
    *entries: bytes,
    tensors: tuple[bytes, ...] = (),
    data: bytes = b"",
    version: int = 3,
    n_keys: int | None = None,
    n_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A GGUF file as the format's description has it, with counts that can lie."""
    counts = (
        len(tensors) if n_tensors is None else n_tensors,
        len(entries) if n_keys is None else n_keys,
    )
    header = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(entries) + b"".join(tensors)
    return header + bytes(-len(header) % alignment) + data


def read(folder: Path, data: bytes) -> GGUFHeader:
    path = folder / "file.gguf"
    path.write_bytes(data)
    return read_header(path)


def refusal(folder: Path, data: bytes) -> str:
    """What the reader says about a file that it must refuse."""
    with pytest.raises(ModelFileError) as caught:
        read(folder, data)
    message = str(caught.value)
    assert message.startswith(str(folder / "file.gguf"))
    return message


# Against the reader of the gguf package


@pytest.fixture(scope="module")
def reference(tiny: Path) -> gguf.GGUFReader:
    return gguf.GGUFReader(tiny)


@pytest.fixture(scope="module")
def header(tiny: Path) -> GGUFHeader:
    return read_header(tiny)


def test_metadata_is_what_the_gguf_package_reads(header: GGUFHeader, reference: gguf.GGUFReader) -> None:
    expected = {key: field.contents() for key, field in reference.fields.items() if not key.startswith("GGUF.")}
    found = {key: list(v) if isinstance(v, (StringArray, np.ndarray)) else v for key, v in header.metadata.items()}
    assert list(found) == list(expected)
    assert found == expected


def test_tensors_are_what_the_gguf_package_reads(header: GGUFHeader, reference: gguf.GGUFReader) -> None:
    found = [(t.name, t.shape, t.type.name, header.data_offset + t.offset, t.nbytes) for t in header.tensors]
    expected = [
        (t.name, tuple(map(int, t.shape)), t.tensor_type.name, int(t.data_offset), int(t.n_bytes))
        for t in reference.tensors
    ]
    assert found == expected


def test_version_data_offset_and_size_are_the_files(header: GGUFHeader, reference: gguf.GGUFReader, tiny: Path) -> None:
    assert header.version == int(reference.fields["GGUF.version"].contents())
    assert header.data_offset == reference.data_offset
    assert header.file_size == tiny.stat().st_size
    assert header.path == tiny


def test_architecture_and_its_hyperparameters_are_found(header: GGUFHeader) -> None:
    assert header.architecture == "llama"
    assert header.hyperparameter("block_count") == 3
    assert header.hyperparameter("no_such_thing") is None
    assert header.hyperparameter("no_such_thing", 7) == 7


def test_tensor_types_agree_with_the_gguf_package() -> None:
    # gguf 0.19 counts Q8_1's two halves as floats; the test against ggml itself covers that type
    known = {int(kind): (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    both = (known.keys() & TENSOR_TYPES.keys()) - {int(gguf.GGMLQuantizationType.Q8_1)}
    assert len(both) >= 30
    assert {n: (TENSOR_TYPES[n].name, TENSOR_TYPES[n].block, TENSOR_TYPES[n].size) for n in both} == {
        n: known[n] for n in both
    }


@pytest.mark.parametrize("kind", list(gguf.GGMLQuantizationType), ids=lambda kind: str(kind.name))
def test_every_tensor_type_has_the_sizes_of_the_installed_ggml(kind: gguf.GGMLQuantizationType) -> None:
    import ctypes

    from llama_cpp._ggml import libggml

    libggml.ggml_type_size.restype, libggml.ggml_blck_size.restype = ctypes.c_size_t, ctypes.c_int64
    number = int(kind)
    assert number in TENSOR_TYPES
    block, size = libggml.ggml_blck_size(number), libggml.ggml_type_size(number)
    assert (TENSOR_TYPES[number].block, TENSOR_TYPES[number].size) == (block, size)


# Files made by hand that are in order


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (U8, [0, 255]), (I8, [-128, 127]), (U16, [0, 65535]), (I16, [-32768, 32767]), (U32, [0, 2**32 - 1]),
        (I32, [-(2**31), 2**31 - 1]), (U64, [0, 2**64 - 1]), (I64, [-(2**63), 2**63 - 1]), (F32, [-0.5, 3.0]),
        (F64, [0.1, -1e300]),
    ],
)  # fmt: skip
def test_numbers_of_every_type_are_read_alone_and_in_arrays(tmp_path: Path, kind: int, values: list[Any]) -> None:
    payload = struct.pack(f"<{len(values)}{FORMATS[kind]}", *values)
    singles = [number(f"v{i}", kind, value) for i, value in enumerate(values)]
    metadata = read(tmp_path, build(*singles, array("all", kind, len(values), payload))).metadata
    assert [metadata[f"v{i}"] for i in range(len(values))] == values
    assert all(type(metadata[f"v{i}"]) is type(values[i]) for i in range(len(values)))
    assert metadata["all"].tolist() == values


def test_bools_and_strings_are_read(tmp_path: Path) -> None:
    entries = (entry("yes", BOOL, b"\1"), entry("no", BOOL, b"\0"), entry("name", STRING, text("héé 🙂")))
    assert read(tmp_path, build(*entries)).metadata == {"yes": True, "no": False, "name": "héé 🙂"}


def test_empty_arrays_and_strings_are_read(tmp_path: Path) -> None:
    entries = (array("n", F32, 0, b""), array("s", STRING, 0, b""), entry("t", STRING, text("")))
    metadata = read(tmp_path, build(*entries)).metadata
    assert (len(metadata["n"]), len(metadata["s"]), metadata["t"]) == (0, 0, "")


def test_string_array_behaves_like_a_list_of_its_strings(tmp_path: Path) -> None:
    words = ["", "a", "Ġthe", "🙂", "last"]
    strings = read(tmp_path, build(array("w", STRING, len(words), b"".join(map(text, words))))).metadata["w"]
    assert list(strings) == words
    assert (strings[-1], strings[1:4], strings[::-2]) == (words[-1], words[1:4], words[::-2])
    assert strings.raw(3) == "🙂".encode()
    assert strings.index("Ġthe") == 2
    for outside in (len(words), -len(words) - 1):
        with pytest.raises(IndexError):
            strings[outside]


def test_bytes_that_are_no_text_are_kept_raw_in_string_arrays(tmp_path: Path) -> None:
    strings = read(tmp_path, build(array("w", STRING, 2, text(b"\xff\xfe") + text("b")))).metadata["w"]
    assert strings.raw(0) == b"\xff\xfe"
    assert strings[0] == "��"
    assert strings[1] == "b"


def test_version_2_is_read_like_version_3(tmp_path: Path) -> None:
    entries, tensors = (number("n", U32, 5),), (tensor("w", (8,)),)
    old = read(tmp_path, build(*entries, tensors=tensors, data=bytes(32), version=2))
    new = read(tmp_path, build(*entries, tensors=tensors, data=bytes(32)))
    assert (old.version, new.version) == (2, 3)
    assert (old.metadata, old.tensors, old.data_offset) == (new.metadata, new.tensors, new.data_offset)


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_data_starts_at_the_alignment_that_the_file_names(tmp_path: Path, alignment: int) -> None:
    data = build(
        number("general.alignment", U32, alignment), tensors=(tensor("w", (3,)),), data=bytes(12), alignment=alignment
    )
    found = read(tmp_path, data)
    assert found.data_offset == len(data) - 12
    assert found.data_offset % alignment == 0


def test_quantized_tensor_takes_whole_blocks_per_row(tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType.Q4_K
    block, size = gguf.GGML_QUANT_SIZES[kind]
    shape, nbytes = (2 * block, 3, 2), 2 * size * 3 * 2
    found = read(tmp_path, build(tensors=(tensor("w", shape, int(kind)),), data=bytes(nbytes)))
    assert (found.tensors[0].shape, found.tensors[0].nbytes) == (shape, nbytes)
    refusal(tmp_path, build(tensors=(tensor("w", shape, int(kind)),), data=bytes(nbytes - 1)))


def test_digest_is_of_the_header_and_the_size_but_not_of_the_weights(tmp_path: Path) -> None:
    def digest(name: str, data: bytes) -> str:
        return read(tmp_path, build(entry("name", STRING, text(name)), tensors=(tensor("w", (8,)),), data=data)).digest

    first = digest("a", bytes(32))
    assert digest("a", b"\1" * 32) == first
    assert len({first, digest("b", bytes(32)), digest("a", bytes(64))}) == 3


# Files that can't be opened


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"gone\.gguf: no such file"):
        read_header(tmp_path / "gone.gguf")


def test_folder_is_told_from_a_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is a folder"):
        read_header(tmp_path)


def test_path_through_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ModelFileError, match="can't be read"):
        read_header(tmp_path / "file" / "x.gguf")


# Files that are damaged or hostile


def complete() -> bytes:
    """A small file with a value of every kind, whose last byte belongs to its last tensor."""
    return build(
        entry("general.architecture", STRING, text("llama")),
        *(number(f"n{kind}", kind, 1) for kind in FORMATS),
        entry("b", BOOL, b"\1"),
        array("a", I32, 3, bytes(12)),
        array("s", STRING, 2, text("x") + text("yz")),
        tensors=(tensor("one", (4, 2)), tensor("two", (32,), int(gguf.GGMLQuantizationType.Q8_0), 32)),
        data=bytes(32 + 34),
    )


def test_file_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    whole = complete()
    assert len(read(tmp_path, whole).tensors) == 2
    for length in range(len(whole)):
        refusal(tmp_path, whole[:length])


def test_truncated_header_names_the_place(tmp_path: Path) -> None:
    head = build(entry("some.key", STRING, text("a long value")), alignment=1)
    message = refusal(tmp_path, head[:-5])
    assert "some.key" in message
    assert f"of {len(head) - 5}" in message


def test_truncated_string_array_names_its_key(tmp_path: Path) -> None:
    head = build(array("some.list", STRING, 2, text("a long value") + text("another")), alignment=1)
    assert "some.list" in refusal(tmp_path, head[:-5])


def test_empty_file_is_refused(tmp_path: Path) -> None:
    assert "not a GGUF" in refusal(tmp_path, b"")


def test_other_format_is_refused(tmp_path: Path) -> None:
    assert "not a GGUF" in refusal(tmp_path, b"PK\3\4" + complete()[4:])


@pytest.mark.parametrize("version", [0, 1, 4, 2**32 - 1])
def test_unsupported_version_is_named(tmp_path: Path, version: int) -> None:
    assert str(version) in refusal(tmp_path, build(version=version))


def test_big_endian_file_is_recognized(tmp_path: Path) -> None:
    assert "big-endian" in refusal(tmp_path, b"GGUF" + struct.pack(">IQQ", 3, 0, 0))


@pytest.mark.parametrize("count", [2**63, 2**64 - 1, 2**32, 10_000])
def test_counts_that_the_file_cannot_hold_are_refused(tmp_path: Path, count: int) -> None:
    one = number("n", U32, 1)
    refusal(tmp_path, build(one, n_keys=count, alignment=1))
    refusal(tmp_path, build(tensors=(tensor("w", (8,)),), data=bytes(32), n_tensors=count))


@pytest.mark.parametrize("length", [2**62, 2**63, 2**64 - 1, 2**64 - 8, 100])
def test_string_length_beyond_the_file_is_refused(tmp_path: Path, length: int) -> None:
    lie = struct.pack("<Q", length) + b"short"
    refusal(tmp_path, build(lie, n_keys=1, alignment=1))
    refusal(tmp_path, build(entry("k", STRING, lie), alignment=1))
    refusal(tmp_path, build(array("k", STRING, 1, lie), alignment=1))
    refusal(tmp_path, build(tensors=(lie,), alignment=1))


@pytest.mark.parametrize("count", [2**61, 2**62, 2**63, 2**64 - 1, 5])
@pytest.mark.parametrize("kind", [U8, F64, BOOL, STRING])
def test_array_count_beyond_the_file_is_refused(tmp_path: Path, kind: int, count: int) -> None:
    assert "'k'" in refusal(tmp_path, build(array("k", kind, count, b"1234"), alignment=1))


def test_lying_counts_cost_no_memory(tmp_path: Path) -> None:
    hostile = [
        build(array("k", kind, count, bytes(64)), alignment=1) for kind in (F64, STRING) for count in (2**30, 2**60)
    ]
    hostile.append(build(tensors=(tensor("w", (2**40, 2**20)),), n_tensors=2**20))
    refusal(tmp_path, hostile[0])
    tracemalloc.start()
    try:
        for data in hostile:
            refusal(tmp_path, data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_nested_array_is_refused(tmp_path: Path) -> None:
    inner = struct.pack("<IQ", U8, 1) + b"\1"
    assert "nested" in refusal(tmp_path, build(array("k", ARRAY, 1, inner)))
    deep = struct.pack("<IQ", ARRAY, 1) * 5000
    assert "nested" in refusal(tmp_path, build(array("k", ARRAY, 1, deep)))


@pytest.mark.parametrize("kind", [13, 255, 2**32 - 1])
def test_unknown_value_type_is_named(tmp_path: Path, kind: int) -> None:
    assert str(kind) in refusal(tmp_path, build(entry("k", kind, bytes(16))))
    assert str(kind) in refusal(tmp_path, build(array("k", kind, 1, bytes(16))))


def test_duplicate_key_is_refused(tmp_path: Path) -> None:
    assert "'twin'" in refusal(tmp_path, build(number("twin", U32, 1), number("twin", U32, 1)))


def test_empty_key_is_refused(tmp_path: Path) -> None:
    refusal(tmp_path, build(number("", U32, 1)))


@pytest.mark.parametrize("raw", [b"\xff", b"caf\xe9", b"\xed\xa0\x80"])
def test_names_and_values_that_are_not_utf8_are_refused(tmp_path: Path, raw: bytes) -> None:
    assert "UTF-8" in refusal(tmp_path, build(entry(raw, BOOL, b"\0")))
    assert "UTF-8" in refusal(tmp_path, build(entry("k", STRING, text(raw))))
    nameless = text(raw) + struct.pack("<IQIQ", 1, 8, 0, 0)
    assert "UTF-8" in refusal(tmp_path, build(tensors=(nameless,), data=bytes(32)))


def test_duplicate_tensor_is_refused(tmp_path: Path) -> None:
    twins = (tensor("twin", (8,)), tensor("twin", (8,), offset=32))
    assert "'twin'" in refusal(tmp_path, build(tensors=twins, data=bytes(64)))


@pytest.mark.parametrize("shape", [(), (2, 2, 2, 2, 2)])
def test_tensor_of_no_or_five_dimensions_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    assert f"{len(shape)} dimensions" in refusal(tmp_path, build(tensors=(tensor("w", shape),), data=bytes(256)))


def test_dimension_count_beyond_the_file_is_refused(tmp_path: Path) -> None:
    assert "'w'" in refusal(tmp_path, build(tensors=(tensor("w", (8,), n_dims=2**32 - 1),), data=bytes(32)))


@pytest.mark.parametrize("shape", [(0,), (8, 0), (8, 0, 8, 8), (2**63, 0)])
def test_dimension_of_zero_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    assert "'w'" in refusal(tmp_path, build(tensors=(tensor("w", shape),), data=bytes(256)))


@pytest.mark.parametrize(
    "shape",
    [(2**64 - 1,), (2**63, 2), (2**32, 2**32), (2**62,), (2**16,) * 4, (2**64 - 1,) * 4, (2**31, 2**31, 4)],
)
def test_dimensions_whose_product_overflows_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    assert math.prod(shape) * 4 >= 2**64
    assert "'w'" in refusal(tmp_path, build(tensors=(tensor("w", shape),), data=bytes(256)))


def test_row_that_is_no_multiple_of_its_block_is_refused(tmp_path: Path) -> None:
    q4_0 = int(gguf.GGMLQuantizationType.Q4_0)
    assert "Q4_0" in refusal(tmp_path, build(tensors=(tensor("w", (33, 32), q4_0),), data=bytes(4096)))


@pytest.mark.parametrize("kind", [4, 5, 31, 36, 1000, 2**32 - 1])
def test_removed_or_unknown_tensor_type_is_named(tmp_path: Path, kind: int) -> None:
    assert f"unknown type {kind}" in refusal(tmp_path, build(tensors=(tensor("w", (256,), kind),), data=bytes(4096)))


@pytest.mark.parametrize("offset", [1, 4, 31, 33, 2**64 - 1])
def test_misaligned_tensor_is_refused(tmp_path: Path, offset: int) -> None:
    assert "aligned" in refusal(tmp_path, build(tensors=(tensor("w", (1,), offset=offset),), data=bytes(256)))


@pytest.mark.parametrize("offset", [32, 64, 2**62, 2**63, 2**64 - 32])
def test_tensor_beyond_the_end_is_refused(tmp_path: Path, offset: int) -> None:
    assert "'w'" in refusal(tmp_path, build(tensors=(tensor("w", (8,), offset=offset),), data=bytes(32)))


def test_tensor_that_ends_one_byte_late_is_refused(tmp_path: Path) -> None:
    tensors = (tensor("w", (9,)),)
    assert read(tmp_path, build(tensors=tensors, data=bytes(36))).tensors[0].nbytes == 36
    assert "beyond the end" in refusal(tmp_path, build(tensors=tensors, data=bytes(35)))


@pytest.mark.parametrize(
    "bad",
    [
        number("general.alignment", U32, 0), number("general.alignment", U32, 3), number("general.alignment", U32, 48),
        number("general.alignment", U32, 2**31), number("general.alignment", I32, -32),
        number("general.alignment", U64, 2**63), number("general.alignment", F32, 32.0),
        entry("general.alignment", STRING, text("32")), array("general.alignment", U32, 1, struct.pack("<I", 32)),
        array("general.alignment", STRING, 1, text("32")),
    ],
)  # fmt: skip
def test_alignment_that_is_no_power_of_two_is_refused(tmp_path: Path, bad: bytes) -> None:
    assert "general.alignment" in refusal(tmp_path, build(bad, tensors=(tensor("w", (8,)),), data=bytes(64)))


# Properties


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=400), disguised=st.booleans())
def test_random_bytes_are_parsed_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, disguised: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "random.gguf"
    path.write_bytes((b"GGUF" + struct.pack("<IQQ", 3, 2, 2) if disguised else b"") + data)
    with contextlib.suppress(ModelFileError):
        read_header(path)


@settings(max_examples=150, deadline=None)
@given(changes=st.dictionaries(st.integers(0, 4095), st.integers(0, 255), min_size=1, max_size=8))
def test_mutated_header_is_parsed_or_refused_quickly(
    tmp_path_factory: pytest.TempPathFactory, tiny: Path, changes: dict[int, int]
) -> None:
    data = bytearray(tiny.read_bytes())
    for position, value in changes.items():
        data[position] = value
    path = tmp_path_factory.getbasetemp() / "mutated.gguf"
    path.write_bytes(data)
    start = time.process_time()
    try:
        header = read_header(path)
    except ModelFileError:
        pass
    else:
        assert all(header.data_offset + t.offset + t.nbytes <= len(data) for t in header.tensors)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("device", ["pipe", "/dev/zero", "/dev/null"])
def test_what_is_no_regular_file_is_refused_unread(tmp_path: Path, device: str) -> None:
    path = Path(device)
    if device == "pipe":
        path = tmp_path / "pipe.gguf"
        os.mkfifo(path)
    with pytest.raises(ModelFileError, match="isn't a regular file"):
        read_header(path)
