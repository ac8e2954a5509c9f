"""The check of a header's contents: what llama.cpp would choke on is refused in words."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.models.errors import ModelFileError
from edgespec.models.gguf import GGUFHeader, StringArray, read_header
from edgespec.models.gguf_check import check_header, checked_header

BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6


@pytest.fixture(scope="module")
def header(tiny: Path) -> GGUFHeader:
    return read_header(tiny)


def strings(values: Sequence[str]) -> StringArray:
    data, offsets = b"", []
    for value in values:
        offsets.append(len(data))
        data += struct.pack("<Q", len(value.encode())) + value.encode()
    return StringArray(data, np.array(offsets, np.int64))


def changed(header: GGUFHeader, **changes: Any) -> GGUFHeader:
    """The header with metadata replaced (`None`: removed). `tokenizer_x` stands for `tokenizer.ggml.x`."""
    metadata = dict(header.metadata)
    for short, value in changes.items():
        room, _, name = short.partition("_")
        key = {"tokenizer": "tokenizer.ggml", "general": "general", "llama": "llama"}[room] + "." + name
        metadata.pop(key, None)
        if value is not None:
            metadata[key] = value
    return dataclasses.replace(header, metadata=metadata)


def reshaped(header: GGUFHeader, rows: int, name: str | None = None) -> GGUFHeader:
    """The header with `token_embd` and `output` (or the one named) of as many rows."""
    names = ("token_embd.weight", "output.weight") if name is None else (name,)
    tensors = tuple(dataclasses.replace(t, shape=(t.shape[0], rows)) if t.name in names else t for t in header.tensors)
    return dataclasses.replace(header, tensors=tensors)


def sentencepiece(header: GGUFHeader, tokens: Sequence[str], types: Sequence[int]) -> GGUFHeader:
    metadata = changed(
        header,
        tokenizer_model="llama",
        tokenizer_tokens=strings(tokens),
        tokenizer_scores=np.zeros(len(tokens), np.float32),
        tokenizer_token_type=np.array(types, np.int32),
        tokenizer_merges=None,
    )
    return reshaped(metadata, len(tokens))


def refusal(header: GGUFHeader) -> str:
    with pytest.raises(ModelFileError) as caught:
        check_header(header)
    message = str(caught.value)
    assert message.startswith(f"{header.path}: ")
    return message


def test_honest_headers_pass(tiny: Path, tiny_draft: Path, tiny_other: Path) -> None:
    for path in (tiny, tiny_draft, tiny_other):
        check_header(read_header(path))


# The model


def test_file_without_weights_is_refused(header: GGUFHeader) -> None:
    assert "no weights" in refusal(dataclasses.replace(header, tensors=()))


@pytest.mark.parametrize("value", [None, ""])
def test_missing_architecture_is_refused(header: GGUFHeader, value: str | None) -> None:
    assert "general.architecture" in refusal(changed(header, general_architecture=value))


@pytest.mark.parametrize("value", [-1, 2**31, 2**63, 3.0, "3", strings(["3"]), np.array([3, -1], np.int32)])
@pytest.mark.parametrize("name", ["block_count", "embedding_length", "context_length", "attention.head_count"])
def test_count_that_is_no_count_is_named(header: GGUFHeader, name: str, value: Any) -> None:
    assert f"llama.{name}" in refusal(changed(header, **{f"llama_{name}": value}))


def test_counts_per_layer_pass(header: GGUFHeader) -> None:
    check_header(changed(header, **{"llama_attention.head_count": np.array([4, 4, 4], np.int32)}))


def test_more_layers_than_tensors_are_refused(header: GGUFHeader) -> None:
    check_header(changed(header, llama_block_count=len(header.tensors)))
    assert "layers" in refusal(changed(header, llama_block_count=len(header.tensors) + 1))


# The tokenizer


@pytest.mark.parametrize(
    "value",
    [
        None, "", "no_such_kind", 5, True, strings(["gpt2"]), np.array([], np.int32), np.array([1], np.int32),
        np.array([1, 2], np.int32),
    ],
)  # fmt: skip
def test_missing_or_unknown_tokenizer_is_refused(header: GGUFHeader, value: Any) -> None:
    message = refusal(changed(header, tokenizer_model=value))
    assert "tokenizer.ggml.model" in message
    assert "gpt2" in message


@pytest.mark.parametrize("value", [None, strings([]), np.arange(1024), "text", 1024])
def test_missing_tokens_are_refused(header: GGUFHeader, value: Any) -> None:
    assert "tokenizer.ggml.tokens" in refusal(changed(header, tokenizer_tokens=value))


@pytest.mark.parametrize("size", [0, 1023, 1025])
@pytest.mark.parametrize("name", ["scores", "token_type"])
def test_arrays_of_unequal_length_are_refused(header: GGUFHeader, name: str, size: int) -> None:
    message = refusal(changed(header, **{f"tokenizer_{name}": np.zeros(size, np.float32)}))
    assert f"tokenizer.ggml.{name}" in message
    assert f"{size} " in message
    assert "1024" in message


@pytest.mark.parametrize("value", [1, 0.5, True])
@pytest.mark.parametrize("name", ["scores", "token_type"])
def test_number_in_place_of_an_array_is_refused(header: GGUFHeader, name: str, value: Any) -> None:
    assert f"tokenizer.ggml.{name}" in refusal(changed(header, **{f"tokenizer_{name}": value}))


@pytest.mark.parametrize("value", [1024, 2**31, 2**32 - 2, 2**64 - 1, -2, 0.0, "1", np.array([1], np.int32)])
@pytest.mark.parametrize("name", ["bos", "eos", "padding", "fim_pre"])
def test_special_id_outside_the_vocabulary_is_named(header: GGUFHeader, name: str, value: Any) -> None:
    message = refusal(changed(header, **{f"tokenizer_{name}_token_id": value}))
    assert f"tokenizer.ggml.{name}_token_id" in message


@pytest.mark.parametrize("value", [0, 1023, -1, 0xFFFFFFFF])
def test_special_id_within_the_vocabulary_or_none_passes(header: GGUFHeader, value: int) -> None:
    check_header(changed(header, tokenizer_eos_token_id=value))


@pytest.mark.parametrize("value", [None, np.arange(3), "a b", 1])
def test_missing_merges_are_refused(header: GGUFHeader, value: Any) -> None:
    assert "tokenizer.ggml.merges" in refusal(changed(header, tokenizer_merges=value))


@pytest.mark.parametrize("bad", ["", " ", "ab", " ab", "é"])
def test_merge_that_is_no_pair_is_named(header: GGUFHeader, bad: str) -> None:
    assert "tokenizer.ggml.merges[1]" in refusal(changed(header, tokenizer_merges=strings(["a b", bad, "c d"])))


def test_merges_that_are_pairs_pass(header: GGUFHeader) -> None:
    check_header(changed(header, tokenizer_merges=strings(["a b", "Ġ t", "é è"])))


def test_llama_tokenizer_with_byte_tokens_passes(header: GGUFHeader) -> None:
    check_header(
        sentencepiece(header, ["<unk>", "<s>", "</s>", *BYTE_TOKENS], [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256)
    )


def test_llama_tokenizer_may_hold_plain_ascii_for_a_byte(header: GGUFHeader) -> None:
    tokens = ["A" if token == "<0x41>" else token for token in BYTE_TOKENS]
    check_header(sentencepiece(header, tokens, [NORMAL if token == "A" else BYTE for token in tokens]))


def test_llama_tokenizer_without_byte_tokens_is_refused(header: GGUFHeader) -> None:
    """A 'gpt2' vocabulary under the wrong name, as in files of broken converters."""
    assert "byte token" in refusal(changed(header, tokenizer_model="llama"))


def test_llama_tokenizer_lacking_one_byte_token_names_it(header: GGUFHeader) -> None:
    tokens = ["<s>", "</s>", *BYTE_TOKENS]
    tokens.remove("<0x80>")
    assert "<0x80>" in refusal(sentencepiece(header, tokens, [CONTROL, CONTROL] + [BYTE] * 255))


def test_llama_tokenizer_with_a_misnamed_byte_token_is_refused(header: GGUFHeader) -> None:
    """llama.cpp looks byte tokens up by their text, whatever their type says, and aborts where one is missing."""
    tokens = ["<s>", "</s>"] + ["<0xZZ>" if token == "<0x41>" else token for token in BYTE_TOKENS]
    assert "<0x41>" in refusal(sentencepiece(header, tokens, [CONTROL, CONTROL] + [BYTE] * 256))


def test_letter_beyond_ascii_is_no_stand_in_for_a_byte_token(header: GGUFHeader) -> None:
    """In UTF-8 'é' is two bytes, neither of them 0xE9: llama.cpp doesn't find it for that byte."""
    tokens = ["é" if token == "<0xE9>" else token for token in BYTE_TOKENS]
    assert "<0xE9>" in refusal(sentencepiece(header, tokens, [NORMAL if token == "é" else BYTE for token in tokens]))


@pytest.mark.parametrize("value", [None, strings(["1"] * 1024)])
def test_llama_tokenizer_without_token_types_is_refused(header: GGUFHeader, value: Any) -> None:
    message = refusal(changed(header, tokenizer_model="llama", tokenizer_token_type=value))
    assert "tokenizer.ggml.token_type" in message


# The tokenizer and the weights together


@pytest.mark.parametrize("rows", [1, 1023, 1025, 2048])
@pytest.mark.parametrize("name", ["token_embd.weight", "output.weight"])
def test_wrong_number_of_embedding_rows_is_refused(header: GGUFHeader, name: str, rows: int) -> None:
    message = refusal(reshaped(header, rows, name))
    assert name in message
    assert f"{rows} rows" in message
    assert "1024" in message


def test_a_checked_header_is_kept_until_the_file_changes(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny.read_bytes())
    first = checked_header(path)
    assert checked_header(path) is first
    path.write_bytes(tiny.read_bytes()[:-1])
    with pytest.raises(ModelFileError):
        checked_header(path)
    path.unlink()
    with pytest.raises(ModelFileError, match="no such file"):
        checked_header(path)
