"""Checks of arguments: what passes, and that a refusal names the option, the value and the need on one line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.models.checks import (
    check_choice,
    check_kind,
    check_text,
    number,
    shown,
    user_path,
    whole,
)
from edgespec.models.errors import UsageError


@pytest.mark.parametrize("value", [0, 5, 10, np.int64(3), np.uint8(4)])
def test_whole_numbers_in_range_pass(value: Any) -> None:
    result = whole("n", value, 0, 10)
    assert result == value
    assert type(result) is int


@pytest.mark.parametrize(
    "value",
    [
        -1,
        11,
        3.0,
        "3",
        None,
        True,
        math.nan,
        [3],
        np.float32(3),
        object(),
        b"3",
        np.array([3]),
    ],
)
def test_other_values_are_no_whole_numbers(value: Any) -> None:
    with pytest.raises(UsageError, match=r"^n is ") as caught:
        whole("n", value, 0, 10)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", [0, 0.5, 1, np.float32(0.25)])
def test_numbers_in_range_pass(value: Any) -> None:
    number("x", value, 0, 1)


@pytest.mark.parametrize("value", [-5e-324, 1.0000001, math.nan, math.inf, -math.inf, "0.5", None, True, 1j, [0.5]])
def test_other_values_are_no_numbers_in_range(value: Any) -> None:
    with pytest.raises(UsageError, match=r"^x is "):
        number("x", value, 0, 1)


def test_a_number_without_bounds_must_still_be_finite() -> None:
    number("x", -1e308)
    with pytest.raises(UsageError, match="finite"):
        number("x", math.inf)


def test_kinds_and_choices_are_named() -> None:
    check_kind("x", None, bool, None)
    check_choice("x", "a", ("a", "b"))
    with pytest.raises(UsageError, match="x is 1; True or False or None is needed"):
        check_kind("x", 1, bool, None)
    for value in ("c", 3, None, ["a"]):
        with pytest.raises(UsageError, match="choose from a, b"):
            check_choice("x", value, ("a", "b"))


@pytest.mark.parametrize("value", ["\ud800", "a\udcff", 3, None, b"x"])
def test_what_utf8_cannot_write_is_no_text(value: Any) -> None:
    check_text("x", "naïve ✓ 🙂")
    with pytest.raises(UsageError, match=r"^x"):
        check_text("x", value)


def test_paths_are_those_that_users_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert user_path("model", "~/m.gguf") == Path("/home/somebody/m.gguf")
    assert user_path("model", Path("m.gguf")) == Path("m.gguf")


@pytest.mark.parametrize("value", ["", "~no-such-user-here/m.gguf", "a\0b", "\ud800", 3, None, ["m.gguf"], b"m.gguf"])
def test_what_is_no_path_is_named(value: Any) -> None:
    with pytest.raises(UsageError, match=r"^model"):
        user_path("model", value)


def test_values_are_shown_short_and_on_one_line() -> None:
    assert shown("a\nb") == r"'a\nb'"
    assert len(shown("x" * 1000)) == 60
    assert "int" in shown(10**5000)


def test_integers_too_long_to_be_written_are_refused_in_words() -> None:
    for value in (10**5000, -(10**5000)):
        with pytest.raises(UsageError, match=r"^n is "):
            whole("n", value, 0, 10)
        with pytest.raises(UsageError, match=r"^n is "):
            number("n", value)
