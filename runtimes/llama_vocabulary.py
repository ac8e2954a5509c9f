"""A GGUF's vocabulary through llama.cpp's own tokenizer."""

from __future__ import annotations

import ctypes
import hashlib
from functools import cached_property
from typing import Any

import numpy as np

from edgespec.models.errors import RuntimeFailure
from edgespec.models.gguf import GGUFHeader, StringArray

from .llama_library import llama

_NORMAL, _BYTE = 1, 6  # llama_token_type


class LlamaVocabulary:
    """Implements `Vocabulary`. Belongs to a loaded model and must not outlive it."""

    def __init__(self, vocab: Any, header: GGUFHeader) -> None:
        self._llama, self._vocab = llama(), vocab
        self.size: int = self._llama.llama_vocab_n_tokens(vocab)
        self._texts: StringArray = header.metadata["tokenizer.ggml.tokens"]
        self._types: np.ndarray | None = header.metadata.get("tokenizer.ggml.token_type")
        self._pieces: dict[tuple[int, bool], bytes] = {}
        bos = self._llama.llama_vocab_bos(vocab)
        self.bos: int | None = bos if bos >= 0 else None
        self.adds_bos: bool = self._llama.llama_vocab_get_add_bos(vocab)

    @cached_property
    def end_tokens(self) -> frozenset[int]:
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
        data = text.encode("utf-8", "replace")
        capacity = len(data) + 16
        tokens = self._tokenize(data, capacity, special)
        if add_bos and self.adds_bos and self.bos is not None and tokens[:1] != [self.bos]:
            tokens.insert(0, self.bos)
        return tokens

    def _tokenize(self, data: bytes, capacity: int, special: bool) -> list[int]:
        buffer = (ctypes.c_int32 * capacity)()
        count = self._llama.llama_tokenize(self._vocab, data, len(data), buffer, capacity, False, special)
        if count == -(1 << 31):
            raise RuntimeFailure("the text is too long for llama.cpp's tokenizer")
        return self._tokenize(data, -count, special) if count < 0 else list(buffer[:count])

    def piece(self, token: int, *, special: bool = False) -> bytes:
        key = (token, special)
        known = self._pieces.get(key)
        if known is None:
            known = self._pieces[key] = self._piece(token, special, 64)
        return known

    def _piece(self, token: int, special: bool, capacity: int) -> bytes:
        buffer = ctypes.create_string_buffer(capacity)
        count = self._llama.llama_token_to_piece(self._vocab, token, buffer, capacity, 0, special)
        return self._piece(token, special, -count) if count < 0 else buffer.raw[:count]
