"""Matches in a suffix automaton against a search through all suffixes."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgespec.drafters.suffix_automaton import Match, SuffixAutomaton


def occurs(part: list[int], text: list[int]) -> bool:
    return any(text[start : start + len(part)] == part for start in range(len(text) - len(part) + 1))


def longest_suffix(stream: list[int], text: list[int]) -> int:
    """Length of the longest suffix of `stream` that occurs in `text`."""
    for length in range(min(len(stream), len(text)), 0, -1):
        if occurs(stream[len(stream) - length :], text):
            return length
    return 0


def assert_found(match: Match, stream: list[int], text: list[int]) -> None:
    assert match.length == longest_suffix(stream, text)
    assert match.length <= match.position <= len(text)
    assert text[match.position - match.length : match.position] == stream[len(stream) - match.length :]


def tokens_of(alphabet: int, size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, alphabet - 1), max_size=size)


small_texts = st.one_of(tokens_of(1, 20), tokens_of(2, 40), tokens_of(3, 50), tokens_of(5, 60))


def follow_growing(tokens: list[int]) -> None:
    """As `Lookup` does: advance, then append, then note."""
    automaton = SuffixAutomaton()
    match = Match(automaton)
    for index, token in enumerate(tokens):
        match.advance(token)
        assert_found(match, tokens[: index + 1], tokens[:index])
        automaton.append(token)
        match.note_occurrence(index)
        assert automaton.text == tokens[: index + 1]


@settings(deadline=None, max_examples=150)
@given(small_texts)
def test_a_match_in_its_own_growing_text_is_the_longest_earlier_suffix(tokens: list[int]) -> None:
    follow_growing(tokens)


@settings(deadline=None)
@given(tokens_of(2, 8), st.integers(1, 6), tokens_of(3, 10), st.integers(1, 4))
def test_a_match_in_a_repetitive_text_is_the_longest_earlier_suffix(
    unit: list[int], times: int, between: list[int], again: int
) -> None:
    follow_growing(unit * times + between + unit * again + between)


@settings(deadline=None, max_examples=150)
@given(small_texts)
def test_a_match_needs_no_notes_to_be_the_longest_earlier_suffix(tokens: list[int]) -> None:
    automaton = SuffixAutomaton()
    match = Match(automaton)
    for index, token in enumerate(tokens):
        match.advance(token)
        assert_found(match, tokens[: index + 1], tokens[:index])
        automaton.append(token)


@settings(deadline=None, max_examples=150)
@given(small_texts, small_texts)
def test_a_match_of_another_stream_is_its_longest_suffix_in_the_text(text: list[int], stream: list[int]) -> None:
    match = Match(SuffixAutomaton(text))
    for index, token in enumerate(stream):
        match.advance(token)
        assert_found(match, stream[: index + 1], text)


@settings(deadline=None)
@given(tokens_of(3, 12), st.lists(st.tuples(st.booleans(), st.integers(0, 2)), max_size=30))
@example([1, 2, 3], [(False, 3), *((True, token) for token in (4, 2, 3, 5)), (False, 5)])
def test_a_match_stays_right_while_the_text_grows_under_it(text: list[int], steps: list[tuple[bool, int]]) -> None:
    automaton, stream = SuffixAutomaton(text), list[int]()
    match = Match(automaton)
    for grows, token in steps:
        if grows:
            automaton.append(token)
            continue
        known = [*stream[len(stream) - match.length :], token]
        stream.append(token)
        match.advance(token)
        assert_found(match, known, automaton.text)


@settings(deadline=None)
@given(small_texts, small_texts)
def test_two_matches_follow_one_text_independently(text: list[int], stream: list[int]) -> None:
    automaton = SuffixAutomaton(text)
    first, second = Match(automaton), Match(automaton)
    for token in stream:
        first.advance(token)
    for token in text:
        second.advance(token)
    assert_found(first, stream, text)
    assert second.length == len(text)
    assert second.position == len(text)


def test_a_new_match_has_found_nothing() -> None:
    match = Match(SuffixAutomaton([1, 2, 3]))
    assert (match.length, match.position) == (0, 0)


def test_an_unknown_token_ends_a_match() -> None:
    match = Match(SuffixAutomaton([1, 2, 3]))
    for token, length in ((1, 1), (2, 2), (9, 0), (2, 1), (3, 2)):
        match.advance(token)
        assert match.length == length


def test_nothing_matches_in_an_empty_text() -> None:
    match = Match(SuffixAutomaton())
    match.advance(1)
    match.note_occurrence(0)
    assert (match.length, match.position) == (0, 0)


def test_a_noted_occurrence_is_the_one_to_go_on_from() -> None:
    automaton, tokens = SuffixAutomaton(), [1, 2, 7, 0, 1, 2, 8, 5, 1, 2]
    match = Match(automaton)
    for index, token in enumerate(tokens):
        match.advance(token)
        automaton.append(token)
        match.note_occurrence(index)
    assert (match.length, match.position) == (2, 6)  # after the second "1 2", not the first


@pytest.mark.parametrize("size", [20_000])
def test_long_texts_are_followed_in_time(size: int) -> None:
    # quadratic time would show as minutes here
    tokens = [(i * i) % 7 for i in range(size)]
    automaton = SuffixAutomaton()
    match = Match(automaton)
    for index, token in enumerate(tokens):
        match.advance(token)
        automaton.append(token)
        match.note_occurrence(index)
    assert match.length > size - 50
