"""What a `TextStream` says and holds back."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.text import TextStream


def say(pieces: list[bytes], stops: list[str] | None = None) -> list[str]:
    """What each piece releases, and last what the flush does."""
    stream = TextStream(pieces.__getitem__, stops or [])
    return [*(stream.feed(token) for token in range(len(pieces))), stream.flush()]


def whole_characters(text: str, size: int) -> str:
    """The characters of a text that its first `size` bytes hold whole."""
    known = ""
    for character in text:
        size -= len(character.encode())
        if size < 0:
            break
        known += character
    return known


def expected_answer(text: str, pieces: list[bytes], stops: list[str]) -> str:
    """The text before a stop, at the first token after which a stop is complete; the whole text where none ever is."""
    size = 0
    for piece in pieces:
        size += len(piece)
        known = whole_characters(text, size)
        starts = [
            start for start in range(len(known)) for stop in stops if stop and known[start : start + len(stop)] == stop
        ]
        if starts:
            return known[: min(starts)]
    return text


def cut(data: bytes, positions: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(position, len(data)) for position in positions), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


# ---- characters


@pytest.mark.parametrize("text", ["😀", "漢字", "é", "👩‍👩‍👧", "a😀b漢c"])
def test_a_character_split_over_tokens_is_emitted_whole(text: str) -> None:
    data = text.encode()
    released = say([data[i : i + 1] for i in range(len(data))])
    assert "".join(released) == text
    for size, part in enumerate(itertools.accumulate(released[:-1]), start=1):
        assert part == whole_characters(text, size)


def test_a_character_comes_with_the_token_that_completes_it() -> None:
    emoji = "😀".encode()
    assert say([b"a" + emoji[:1], emoji[1:3], emoji[3:] + b"b"]) == ["a", "", "😀b", ""]


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([b"a\xffb"], "a�b"),
        ([b"\x80"], "�"),
        ([b"\xe6\xbc", b"x"], "�x"),  # a CJK character that another one interrupts
        ([b"\xf0\x9f", b"\xf0\x9f\x98\x80"], "�😀"),
        ([b"ok\xf0\x9f\x98"], "ok�"),  # half a character at the end
        ([b"\xc0\xaf"], "��"),  # an overlong slash
        ([b"\xed\xa0\x80"], "���"),  # a surrogate
    ],
)
def test_invalid_bytes_become_replacement_characters(pieces: list[bytes], text: str) -> None:
    assert "".join(say(pieces)) == text


def test_half_a_character_at_the_end_is_released_by_the_flush_only() -> None:
    assert say([b"ok\xf0\x9f", b"\x98"]) == ["ok", "", "�"]


@settings(deadline=None)
@given(st.binary(max_size=40), st.lists(st.integers(0, 40), max_size=8))
def test_any_bytes_read_as_they_would_in_one_piece(data: bytes, positions: list[int]) -> None:
    assert "".join(say(cut(data, positions))) == data.decode("utf-8", "replace")


def test_tokens_without_bytes_say_nothing() -> None:
    assert say([b"", b"a", b"", b""], ["ab"]) == ["", "", "", "", "a"]


# ---- stops


def test_text_before_a_stop_is_kept_and_text_after_it_dropped() -> None:
    pieces = [b"one ", b"two END three", b" four"]
    stream = TextStream(pieces.__getitem__, ["END"])
    assert stream.feed(0) == "one "
    assert not stream.stopped
    assert stream.feed(1) == "two "
    assert stream.stopped
    assert stream.feed(2) == ""
    assert stream.flush() == ""
    assert stream.stopped


def test_a_stop_across_tokens_is_found() -> None:
    assert say([b"a<", b"|e", b"nd", b"|>b"], ["<|end|>"]) == ["a", "", "", "", ""]


def test_a_stop_of_characters_split_over_tokens_is_found() -> None:
    data = "x漢字y".encode()
    assert "".join(say([data[i : i + 1] for i in range(len(data))], ["漢字"])) == "x"


def test_the_beginning_of_a_stop_is_held_back_and_released_when_it_goes_on_otherwise() -> None:
    assert say([b"a<", b"|e", b"x", b"<"], ["<|end|>"]) == ["a", "", "<|ex", "", "<"]


def test_only_what_may_still_become_a_stop_stays_held_back() -> None:
    # "aab" goes on being possible from the second a of "aaa"
    assert say([b"a", b"a", b"a", b"c"], ["aab"]) == ["", "", "a", "aac", ""]


def test_a_stop_inside_the_held_back_beginning_of_another_is_found() -> None:
    assert "".join(say([b"x", b"a", b"b", b"c", b"d"], ["abcde", "bc"])) == "xa"


def test_overlapping_stops_end_the_answer_where_the_first_complete_one_begins() -> None:
    assert "".join(say([b"x", b"a", b"b", b"c"], ["ab", "bc"])) == "x"
    assert "".join(say([b"xabc"], ["bc", "ab"])) == "x"
    assert "".join(say([b"xzbc"], ["bc", "ab"])) == "xz"


@pytest.mark.parametrize("stops", [["ab", "abc"], ["abc", "ab"]])
def test_a_stop_that_another_one_begins_with_ends_the_answer_first(stops: list[str]) -> None:
    pieces = [b"x", b"a", b"b", b"c"]
    stream = TextStream(pieces.__getitem__, stops)
    assert [stream.feed(token) for token in range(3)] == ["x", "", ""]
    assert stream.stopped


def test_the_longer_of_two_stops_with_the_same_end_is_cut_off() -> None:
    for stops in (["bc", "abc"], ["abc", "bc"]):
        assert "".join(say([b"x", b"a", b"b", b"c"], stops)) == "x"


def test_a_stop_at_the_very_beginning_leaves_nothing() -> None:
    assert "".join(say([b"\n\nhello"], ["\n\n"])) == ""


def test_a_stop_that_only_the_flush_completes_is_cut_off() -> None:
    stream = TextStream([b"ok\xf0"].__getitem__, ["�"])
    assert stream.feed(0) + stream.flush() == "ok"
    assert stream.stopped


def test_empty_stops_are_ignored() -> None:
    assert "".join(say([b"abc"], ["", "c"])) == "ab"
    assert "".join(say([b"abc"], [""])) == "abc"


def test_a_second_flush_says_nothing() -> None:
    stream = TextStream([b"a<"].__getitem__, ["<>"])
    assert (stream.feed(0), stream.flush(), stream.flush()) == ("a", "<", "")


texts = st.text(alphabet="ab\n漢😀", max_size=24)
stop_lists = st.lists(st.text(alphabet="ab\n漢😀", max_size=5), max_size=4)
positions = st.lists(st.integers(0, 100), max_size=30)


@settings(deadline=None, max_examples=250)
@given(texts, stop_lists, positions)
def test_the_output_is_the_text_up_to_the_first_complete_stop_and_never_taken_back(
    text: str, stops: list[str], at: list[int]
) -> None:
    pieces = cut(text.encode(), at)
    answer = expected_answer(text, pieces, stops)
    stream, said, size = TextStream(pieces.__getitem__, stops), "", 0
    for token, piece in enumerate(pieces):
        said += stream.feed(token)
        assert answer.startswith(said)
        size += len(piece)
        if not stream.stopped:  # no more is held back than what may become a stop
            known = whole_characters(text, size)
            held = known[len(said) :]
            assert said + held == known
            assert not held or any(stop.startswith(held) and stop != held for stop in stops)
    assert said + stream.flush() == answer
    assert stream.stopped == any(stop and stop in text for stop in stops)


@settings(deadline=None, max_examples=150)
@given(texts, stop_lists)
def test_character_by_character_the_first_stop_to_be_complete_counts(text: str, stops: list[str]) -> None:
    answer = text
    for end in range(1, len(text) + 1):
        ending = [len(stop) for stop in stops if stop and text[:end].endswith(stop)]
        if ending:
            answer = text[: end - max(ending)]
            break
    assert "".join(say([character.encode() for character in text], stops)) == answer


@settings(deadline=None, max_examples=150)
@given(texts, st.text(alphabet="ab\n漢😀", min_size=1, max_size=4), positions)
def test_where_tokens_end_makes_no_difference_to_a_single_stop(text: str, stop: str, at: list[int]) -> None:
    assert "".join(say(cut(text.encode(), at), [stop])) == text.partition(stop)[0]
