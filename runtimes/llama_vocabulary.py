"""A GGUF's vocabulary through llama.cpp's own tokenizer."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from edgespec.models.checks import check_text
from edgespec.models.errors import RuntimeFailure, UsageError
from edgespec.models.gguf import GGUFHeader, StringArray

from .llama_library import llama

_NORMAL, _BYTE = 1, 6  # llama_token_type


class LlamaVocabulary:
    """Implements `Vocabulary` as long as the model that it belongs to is open.

    Args:
        is_open: whether it is; llama.cpp frees the vocabulary with the model.
    """

    def __init__(self, vocab: Any, header: GGUFHeader, is_open: Callable[[], bool]) -> None:
        self._llama, self._vocab, self._is_open = llama(), vocab, is_open
        self.size: int = self._llama.llama_vocab_n_tokens(vocab)
        self._texts: StringArray = header.metadata["tokenizer.ggml.tokens"]
        self._types: np.ndarray | None = header.metadata.get("tokenizer.ggml.token_type")
        self._pieces: dict[tuple[int, bool], bytes] = {}
        bos = self._llama.llama_vocab_bos(vocab)
        self.bos: int | None = bos if bos >= 0 else None
        self.adds_bos: bool = self._llama.llama_vocab_get_add_bos(vocab)

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        self._require_open()
        # only control tokens can end an answer; asking for each of 150,000 tokens takes a tenth of a second
        special = (
            np.arange(self.size) if self._types is None else np.flatnonzero(~np.isin(self._types, (_NORMAL, _BYTE)))
        )
        named = {self._llama.llama_vocab_eos(self._vocab), self._llama.llama_vocab_eot(self._vocab)} - {-1}
        return frozenset(t for t in {*map(int, special), *named} if self._llama.llama_vocab_is_eog(self._vocab, t))

    @cached_property
    def fingerprint(self) -> str:
        """Equal for vocabularies whose tokens are equal, id by id."""
        digest = hashlib.sha256()
        for i in range(len(self._texts)):
            text = self._texts.raw(i)
            digest.update(len(text).to_bytes(4, "little") + text)
        return digest.hexdigest()

    def text(self, token: int) -> str:
        """The token as it stands in the vocabulary (in a byte-level vocabulary ' a' is written 'Ġa')."""
        return self._texts[token]

    def encode(self, text: str, *, special: bool, add_bos: bool) -> list[int]:
        check_text("the text", text)
        data = text.encode("utf-8")
        capacity = len(data) + 16
        tokens = self._tokenize(data, capacity, special)
        if add_bos and self.adds_bos and self.bos is not None and tokens[:1] != [self.bos]:
            tokens.insert(0, self.bos)
        return tokens

    def _tokenize(self, data: bytes, capacity: int, special: bool) -> list[int]:
        self._require_open()
        buffer = (ctypes.c_int32 * capacity)()
        count = self._llama.llama_tokenize(self._vocab, data, len(data), buffer, capacity, False, special)
        if count == -(1 << 31):
            raise RuntimeFailure("the text is too long for llama.cpp's tokenizer")
        return self._tokenize(data, -count, special) if count < 0 else list(buffer[:count])

    def piece(self, token: int, *, special: bool = False) -> bytes:
        key = (token, special)
        if not 0 <= token < self.size:
            raise UsageError(f"token {token} is outside the vocabulary of {self.size}")
        known = self._pieces.get(key)
        if known is None:
            known = self._pieces[key] = self._piece(token, special, 64)
        return known

    def _piece(self, token: int, special: bool, capacity: int) -> bytes:
        self._require_open()
        buffer = ctypes.create_string_buffer(capacity)
        count = self._llama.llama_token_to_piece(self._vocab, token, buffer, capacity, 0, special)
        return self._piece(token, special, -count) if count < 0 else buffer.raw[:count]

    def _require_open(self) -> None:
        if not self._is_open():
            raise RuntimeFailure("this model was closed")
