"""Where a chat's questions come from: a terminal with history and editing, or a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import platformdirs

from edgespec.models.errors import UsageError

from .streams import MOST_BYTES, decoded, notice

BLOCK = '"""'


class Line(NamedTuple):
    """What was entered: a question, or a command, which begins with a slash."""

    text: str
    is_command: bool


class Asker(Protocol):
    """Gives one line after the other."""

    def ask(self) -> Line | None:
        """The next one; None at the end.

        Raises:
            KeyboardInterrupt: Ctrl-C while it was being written.
        """


def understood(text: str) -> Line:
    """A block between triple quotes, or a text without blanks around it; a slash in either's beginning is text."""
    stripped = text.strip()
    if stripped.startswith(BLOCK):
        return Line(stripped.removeprefix(BLOCK).removesuffix(BLOCK).strip("\n"), False)
    return Line(stripped, text.startswith("/"))


def is_open(text: str) -> bool:
    """Whether a block was begun and not ended."""
    stripped = text.strip()
    return stripped.startswith(BLOCK) and (len(stripped) < 2 * len(BLOCK) or not stripped.endswith(BLOCK))


class PipeAsker:
    """One question a line, or a block between triple quotes."""

    def ask(self) -> Line | None:
        line = self._line()
        while line and is_open(line):
            more = self._line()
            if not more:
                break
            line += more
        return understood(line) if line else None

    def _line(self) -> str:
        try:
            line = sys.stdin.buffer.readline(MOST_BYTES)
        except OSError as error:
            raise UsageError(f"standard input: can't be read: {error.strerror or error}") from None
        if len(line) == MOST_BYTES:
            raise UsageError(f"standard input: a line of {MOST_BYTES >> 20} MiB, which no context holds")
        return decoded("standard input", line)


def history_path() -> Path:
    """Where questions are remembered: `EDGESPEC_HISTORY`, or a file in the system's folder for a user's state."""
    named = os.environ.get("EDGESPEC_HISTORY")
    return Path(named) if named else Path(platformdirs.user_state_dir("edgespec", appauthor=False)) / "chat-history"


class TerminalAsker:
    """A prompt with history and completion of commands; Enter sends, Alt-Enter begins a new line.

    Args:
        commands: names that are completed, each with its slash.
    """

    def __init__(self, commands: Sequence[str]) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.output.color_depth import ColorDepth

        self._session: PromptSession[str] = PromptSession(
            history=_history(),
            key_bindings=_keys(),
            multiline=True,
            prompt_continuation=lambda width, _line, _wraps: "." * (width - 1) + " ",
            completer=WordCompleter(list(commands), sentence=True),
            complete_while_typing=False,
            color_depth=ColorDepth.MONOCHROME if os.environ.get("NO_COLOR") else None,
        )

    def ask(self) -> Line | None:
        try:
            return understood(self._session.prompt("> "))
        except EOFError:
            return None


def _history() -> Any:
    """The history file, or one in memory where the place can't be written."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    path = history_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600)  # what people ask is theirs
        os.close(handle)
    except OSError as error:
        notice(f"note: {path}: {error.strerror or error}; the history of this chat isn't kept")
        return InMemoryHistory()
    return FileHistory(str(path))


def _keys() -> Any:
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.keys import Keys

    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: Any) -> None:
        buffer = event.current_buffer
        if is_open(buffer.text):
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add(Keys.Vt100MouseEvent, eager=True)
    def _ignore(_event: Any) -> None:
        """Also what only looks like one, such as a colour code, on which prompt_toolkit would stumble."""

    @keys.add("escape", "enter")
    def _new_line(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    return keys
