"""Checks a GGUF's metadata before llama.cpp sees it, since llama.cpp can abort the whole process on a bad file."""

from __future__ import annotations

import dataclasses
import weakref
from pathlib import Path

import numpy as np

from .errors import ModelFileError
from .gguf import GGUFHeader, StringArray, read_header

TOKENIZER_KINDS = ("gpt2", "llama", "bert", "t5", "rwkv", "plamo2", "hybriddna")
_COUNTS = ("block_count", "embedding_length", "attention.head_count", "context_length")


_checked: dict[tuple[Path, int, int, int], weakref.ref[GGUFHeader]] = {}
"""No WeakValueDictionary: its callback is Python code, in which an interrupt of a long release would be lost."""


def checked_header(path: Path) -> GGUFHeader:
    """Read and check a model file's header, unless somebody still holds it: 150,000 tokens take a while, and memory.

    Raises:
        ModelFileError: missing, damaged, or not one that can be run.
    """
    try:
        stat = path.stat()
    except OSError:
        return read_header(path)  # which says what is wrong
    state = (path, stat.st_size, stat.st_mtime_ns, stat.st_ino)
    held = _checked.get(state)
    header = held() if held else None
    if header is None:
        header = read_header(path)
        check_header(header)
        # llama.cpp reads the merges itself: megabytes that nobody here looks at again
        rest = {key: value for key, value in header.metadata.items() if key != "tokenizer.ggml.merges"}
        header = dataclasses.replace(header, metadata=rest)
        for gone in [state for state, held in list(_checked.items()) if held() is None]:
            _checked.pop(gone, None)
        _checked[state] = weakref.ref(header)
    return header


def check_header(header: GGUFHeader) -> None:
    """Refuse what is sure to be wrong: missing hyperparameters, a tokenizer whose parts don't fit together.

    Raises:
        ModelFileError: names the key and what is wrong with it.
    """
    if not header.tensors:
        raise ModelFileError(f"{header.path}: holds no weights (a vocabulary-only file?)")
    if not header.architecture:
        raise ModelFileError(f"{header.path}: general.architecture is missing, so this isn't a language model")
    _check_hyperparameters(header)
    _check_tokenizer(header)


def _check_hyperparameters(header: GGUFHeader) -> None:
    for name in _COUNTS:
        value = header.hyperparameter(name)
        values = value if isinstance(value, np.ndarray) else [value]
        if value is not None and not all(isinstance(v, (int, np.integer)) and 0 <= v < 1 << 31 for v in values):
            raise ModelFileError(f"{header.path}: {header.architecture}.{name} is {value!r}")
    blocks = header.hyperparameter("block_count")
    if isinstance(blocks, int) and blocks > len(header.tensors):
        raise ModelFileError(f"{header.path}: claims {blocks} layers but holds {len(header.tensors)} tensors")


def _check_tokenizer(header: GGUFHeader) -> None:
    kind = header.metadata.get("tokenizer.ggml.model")
    if not isinstance(kind, str) or kind not in TOKENIZER_KINDS:
        raise ModelFileError(f"{header.path}: tokenizer.ggml.model is {kind!r}; known are {', '.join(TOKENIZER_KINDS)}")
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, StringArray) or not len(tokens):
        raise ModelFileError(f"{header.path}: tokenizer.ggml.tokens is missing or empty")
    for name in ("scores", "token_type"):
        values = header.metadata.get(f"tokenizer.ggml.{name}")
        if values is not None and not isinstance(values, np.ndarray):
            raise ModelFileError(f"{header.path}: tokenizer.ggml.{name} isn't an array of numbers")
        if values is not None and len(values) != len(tokens):
            raise ModelFileError(
                f"{header.path}: tokenizer.ggml.{name} has {len(values)} entries for {len(tokens)} tokens"
            )
    _check_special_ids(header, len(tokens))
    if kind == "gpt2":
        _check_merges(header)
    if kind == "llama":
        _check_byte_tokens(header)
    _check_embedding(header, len(tokens))


def _check_special_ids(header: GGUFHeader, size: int) -> None:
    for key, value in header.metadata.items():
        if not (key.startswith("tokenizer.ggml.") and key.endswith("_token_id")):
            continue
        # 0xFFFFFFFF stands for "none" in files of some converters
        if not isinstance(value, int) or not (-1 <= value < size or value == 0xFFFFFFFF):
            raise ModelFileError(f"{header.path}: {key} is {value!r}, outside the vocabulary of {size} tokens")


def _check_merges(header: GGUFHeader) -> None:
    merges = header.metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, StringArray):
        raise ModelFileError(f"{header.path}: tokenizer.ggml.merges is missing, which a 'gpt2' tokenizer needs")
    for i in range(len(merges)):
        if merges.raw(i).find(b" ", 1) < 0:
            raise ModelFileError(f"{header.path}: tokenizer.ggml.merges[{i}] isn't a pair: {merges[i]!r}")


def _check_byte_tokens(header: GGUFHeader) -> None:
    """A SentencePiece vocabulary falls back to byte tokens; llama.cpp aborts where one is missing.

    It looks for `<0x41>`, then for the raw byte itself, whatever type the token claims.
    """
    if not isinstance(header.metadata.get("tokenizer.ggml.token_type"), np.ndarray):
        raise ModelFileError(f"{header.path}: tokenizer.ggml.token_type is missing, which a 'llama' tokenizer needs")
    tokens: StringArray = header.metadata["tokenizer.ggml.tokens"]
    texts = {tokens.raw(i) for i in range(len(tokens))}
    for byte in range(256):
        if f"<0x{byte:02X}>".encode() not in texts and bytes([byte]) not in texts:
            raise ModelFileError(
                f"{header.path}: a 'llama' tokenizer without the byte token <0x{byte:02X}>; "
                "tokenizer.ggml.model probably names the wrong kind"
            )


def _check_embedding(header: GGUFHeader, size: int) -> None:
    for tensor in header.tensors:
        if tensor.name in ("token_embd.weight", "output.weight") and tensor.shape[-1] != size:
            raise ModelFileError(
                f"{header.path}: {tensor.name} has {tensor.shape[-1]} rows for a vocabulary of {size} tokens"
            )
