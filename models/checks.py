"""Checks of what callers hand in, so that a wrong type or a number out of range is named where it enters."""

from __future__ import annotations

import math
import os
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from .errors import UsageError

_SHOWN = 60


def shown(value: object) -> str:
    """A value as an error message shows it: short, on one line."""
    try:
        text = repr(value)
    except Exception:  # Python doesn't write integers of thousands of digits, and a foreign `repr` may do anything
        text = f"a {type(value).__name__} that can't be shown"
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def whole(name: str, value: Any, least: int = 0, most: int | None = None) -> int:
    """The value as Python's own integer (numpy's wrap around).

    Raises:
        UsageError: not a whole number in the range.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise UsageError(f"{name} is {shown(value)}; a whole number is needed")
    if value < least:
        raise UsageError(f"{name} is {shown(value)}; it must be {least} or more")
    if most is not None and value > most:
        raise UsageError(f"{name} is {shown(value)}; it must be at most {most}")
    return int(value)


def number(name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """The value as a float.

    Raises:
        UsageError: not a finite number in the range, bounds included.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise UsageError(f"{name} is {shown(value)}; a number is needed")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not (math.isfinite(result) and least <= result <= most):
        bounds = [f"{word} {bound:g}" for word, bound in (("at least", least), ("at most", most)) if abs(bound) < 1e300]
        raise UsageError(f"{name} is {shown(value)}; it must be {' and '.join(bounds) or 'a finite number'}")
    return result


def check_kind(name: str, value: Any, *kinds: type | None) -> None:
    """Raises `UsageError` unless the value is of one of the kinds; None stands for None."""
    types = tuple(kind for kind in kinds if kind is not None)
    if not isinstance(value, types) and not (value is None and None in kinds):
        names = " or ".join("None" if kind is None else _NAMES.get(kind, kind.__name__) for kind in kinds)
        raise UsageError(f"{name} is {shown(value)}; {names} is needed")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raises `UsageError` unless the value is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise UsageError(f"{name} {shown(value)} is unknown; choose from {', '.join(choices)}")


def check_text(name: str, value: Any) -> None:
    """Raises `UsageError` unless the value is text that UTF-8 can write (half of a surrogate pair isn't)."""
    check_kind(name, value, str)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(f"{name}: isn't valid text (character {error.start} is {value[error.start]!r})") from None


def user_path(name: str, value: Any) -> Path:
    """A path as a user writes it, `~` included.

    Raises:
        UsageError: not a path, or the home of nobody.
    """
    check_kind(name, value, str, Path)
    try:
        # bytes that aren't UTF-8 may stand in a path, other halves of surrogate pairs may not
        if not os.fsencode(value) or "\0" in str(value):
            raise UsageError(f"{name} is {shown(str(value))}; a path is needed")
        return Path(value).expanduser()
    except UnicodeEncodeError:
        raise UsageError(f"{name} {shown(str(value))}: isn't a path that this system can have") from None
    except RuntimeError:
        raise UsageError(f"{name} {shown(str(value))}: this user has no home folder") from None


_NAMES: dict[type, str] = {str: "text", bool: "True or False", Path: "a path", int: "a whole number"}
