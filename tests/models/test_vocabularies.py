from __future__ import annotations

import pytest

from edgespec.models.errors import VocabularyMismatch
from edgespec.models.vocabularies import differing_tokens


class Words:
    """A vocabulary as a list of texts."""

    def __init__(self, texts: list[str]) -> None:
        self.texts, self.size = texts, len(texts)

    @property
    def fingerprint(self) -> str:
        return "|".join(self.texts)

    def text(self, token: int) -> str:
        return self.texts[token]


WORDS = [f"word{i}" for i in range(1000)]


def compare(target: list[str], draft: list[str]) -> frozenset[int]:
    return differing_tokens(Words(target), Words(draft))


def test_equal_vocabularies_differ_nowhere() -> None:
    assert compare(WORDS, list(WORDS)) == frozenset()


def test_a_few_renamed_tokens_are_left_out_of_drafts() -> None:
    renamed = [*WORDS[:10], "<tool>", *WORDS[11:500], "<end>", *WORDS[501:]]
    assert compare(WORDS, renamed) == {10, 500}


def test_padding_is_harmless() -> None:
    assert compare([*WORDS, "[PAD1]", "[PAD2]"], WORDS) == frozenset()
    assert compare(WORDS, [*WORDS, "[PAD1]"]) == frozenset()


def test_another_vocabulary_is_refused_and_the_first_differences_named() -> None:
    with pytest.raises(
        VocabularyMismatch, match=r"11 of 1000 tokens differ \(0: 'word0' and 'x0', 1: 'word1' and 'x1'"
    ):
        compare(WORDS, [f"x{i}" if i < 11 else word for i, word in enumerate(WORDS)])
