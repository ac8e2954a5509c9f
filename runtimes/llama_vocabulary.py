"""A GGUF's vocabulary through llama.cpp's own tokenizer."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from edgespec.models.checks import check_text
from edgespec.models.errors import RuntimeFailure, UsageError
from edgespec.models.gguf import GGUFHeader

from .llama_library import llama
from .threads import start_with_stack

_NORMAL, _BYTE = 1, 6  # llama_token_type
_SHORT = 2000
_STACK_BASE, _STACK_PER_BYTE = 8 << 20, 1 << 10
"""Of the thread that tokenizes long text: address space, of which the system gives what is used."""


class LlamaVocabulary:
    """Implements `Vocabulary` as long as the model that it belongs to is open.

    Args:
        is_open: whether it is; llama.cpp frees the vocabulary with the model.
    """

    def __init__(self, vocab: Any, header: GGUFHeader, is_open: Callable[[], bool]) -> None:
        self._llama, self._vocab, self._is_open = llama(), vocab, is_open
        self.size: int = self._llama.llama_vocab_n_tokens(vocab)
        # of the header only what is small is kept: its arrays take megabytes
        texts, types = header.metadata["tokenizer.ggml.tokens"], header.metadata.get("tokenizer.ggml.token_type")
        self.fingerprint: str = texts.digest
        """Equal for vocabularies whose tokens are equal, id by id."""
        self.longest = max(4, texts.longest)
        """Bytes of the longest token: a text of more than n times as many has more than n tokens."""
        # only control tokens can end an answer; asking for each of 150,000 tokens takes a tenth of a second
        special = np.arange(self.size) if types is None else np.flatnonzero(~np.isin(types, (_NORMAL, _BYTE)))
        self._special = [int(token) for token in special]
        self._pieces: dict[tuple[int, bool], bytes] = {}
        self.lock = threading.RLock()
        """Held while llama.cpp uses the vocabulary, so that it isn't freed meanwhile."""
        bos = self._llama.llama_vocab_bos(vocab)
        self.bos: int | None = bos if bos >= 0 else None
        self.adds_bos: bool = self._llama.llama_vocab_get_add_bos(vocab)

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        with self.lock:
            self._require_open()
            named = {self._llama.llama_vocab_eos(self._vocab), self._llama.llama_vocab_eot(self._vocab)} - {-1}
            candidates = {*self._special, *named}
            return frozenset(t for t in candidates if self._llama.llama_vocab_is_eog(self._vocab, t))

    def text(self, token: int) -> str:
        """The token as it stands in the vocabulary (in a byte-level vocabulary ' a' is written 'Ġa')."""
        self._require_token(token)
        with self.lock:
            self._require_open()
            return bytes(self._llama.llama_vocab_get_text(self._vocab, token)).decode("utf-8", "replace")

    def encode(self, text: str, *, special: bool, add_bos: bool) -> list[int]:
        check_text("the text", text)
        data = text.encode("utf-8")
        # the tokenizer splits text by regular expressions, which recurse for each character: on the main thread's stack
        # some crash from 20,000 on
        tokens = self._tokenize(data, special) if len(data) < _SHORT else self._tokenize_aside(data, special)
        if add_bos and self.adds_bos and self.bos is not None and tokens[:1] != [self.bos]:
            tokens.insert(0, self.bos)
        return tokens

    def _tokenize_aside(self, data: bytes, special: bool) -> list[int]:
        """In a thread with a large stack, which also lets an interrupt through."""
        results: list[list[int]] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(self._tokenize(data, special))
            except BaseException as error:
                errors.append(error)

        thread = start_with_stack(run, _STACK_BASE + _STACK_PER_BYTE * len(data))
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def _tokenize(self, data: bytes, special: bool) -> list[int]:
        capacity = len(data) + 16
        while True:
            buffer = (ctypes.c_int32 * capacity)()
            with self.lock:
                self._require_open()
                count = self._llama.llama_tokenize(self._vocab, data, len(data), buffer, capacity, False, special)
            if count == -(1 << 31):
                raise RuntimeFailure("the text is too long for llama.cpp's tokenizer")
            if count >= 0:
                return list(buffer[:count])
            capacity = -count

    def piece(self, token: int, *, special: bool = False) -> bytes:
        key = (token, special)
        self._require_token(token)
        known = self._pieces.get(key)
        if known is None:
            known = self._pieces[key] = self._piece(token, special, 64)
        return known

    def _piece(self, token: int, special: bool, capacity: int) -> bytes:
        buffer = ctypes.create_string_buffer(capacity)
        with self.lock:
            self._require_open()
            count = self._llama.llama_token_to_piece(self._vocab, token, buffer, capacity, 0, special)
        return self._piece(token, special, -count) if count < 0 else buffer.raw[:count]

    def _require_open(self) -> None:
        if not self._is_open():
            raise RuntimeFailure("this model was closed")

    def _require_token(self, token: int) -> None:
        if not 0 <= token < self.size:
            raise UsageError(f"token {token} is outside the vocabulary of {self.size}")
