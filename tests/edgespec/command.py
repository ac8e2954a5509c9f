"""Runs the command line in the test's own process."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from edgespec.cli.main import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command; what it reads from standard input is given as bytes."""

    def run_(*arguments: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["edgespec", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Result(int(caught.value.code or 0), out, err)

    return run_


def one_line_error(result: Result, code: int, *words: str) -> None:
    assert result.code == code, result
    assert result.out == ""
    message = [line for line in result.err.splitlines() if line.startswith("Error: ")]
    assert len(message) == 1, result.err
    for word in words:
        assert word in message[0], message
