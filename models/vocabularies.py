"""Whether a draft speaks its target's language: vocabularies compared token by token."""

from __future__ import annotations

from typing import Protocol

from .errors import VocabularyMismatch
from .gguf import GGUFHeader, StringArray

_HARMLESS_SHARE = 0.01
_SHOWN = 3


class Tokens(Protocol):
    """The part of a `Vocabulary` that is compared."""

    @property
    def size(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...
    def text(self, token: int) -> str: ...


class HeaderVocabulary:
    """As much of a vocabulary as a comparison needs, from a file's header."""

    def __init__(self, header: GGUFHeader) -> None:
        self._texts: StringArray = header.metadata["tokenizer.ggml.tokens"]
        self.size, self.fingerprint = len(self._texts), self._texts.digest

    def text(self, token: int) -> str:
        return self._texts[token]


def differing_tokens(target: Tokens, draft: Tokens) -> frozenset[int]:
    """Tokens that the two know under one id but with different texts; never to be drafted.

    A few are harmless (reserved or control tokens that a fine-tune renamed), and so are vocabularies of different
    lengths, which padding makes.

    Raises:
        VocabularyMismatch: more than one token in a hundred differs; names the first ones.
    """
    if target.fingerprint == draft.fingerprint:
        return frozenset()
    shared = min(target.size, draft.size)
    different = [t for t in range(shared) if target.text(t) != draft.text(t)]
    if len(different) > _HARMLESS_SHARE * shared:
        examples = ", ".join(f"{t}: {target.text(t)!r} and {draft.text(t)!r}" for t in different[:_SHOWN])
        raise VocabularyMismatch(
            f"the draft's vocabulary isn't the target's: {len(different)} of {shared} tokens differ ({examples}); "
            "choose a draft of the same model family"
        )
    return frozenset(different)
