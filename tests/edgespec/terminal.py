"""A program on a terminal of its own, and what a person would see there."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable

import pyte

PATIENCE_S = 60


class Terminal:
    """Runs `edgespec` with these arguments.

    Args:
        environment: added to this process's own.
    """

    def __init__(
        self, *arguments: object, columns: int = 100, rows: int = 40, environment: dict[str, str] | None = None
    ):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "edgespec.cli.main", *map(str, arguments)],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, close_fds=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            # a plain pseudo-terminal doesn't say where its cursor is
            env=os.environ | {"PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm-256color"} | (environment or {}),
        )  # fmt: skip
        os.close(theirs)
        self._ours = ours
        self._screen = pyte.HistoryScreen(columns, rows, history=5000)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""

    @property
    def text(self) -> str:
        """All lines, also those that went off at the top."""
        above = ["".join(line[x].data for x in range(self._screen.columns)) for line in self._screen.history.top]
        return "\n".join(line.rstrip() for line in [*above, *self._screen.display]).rstrip()

    def send(self, data: str) -> None:
        os.write(self._ours, data.encode())

    def enter(self, line: str) -> None:
        """Write a line and send it, once the prompt is there."""
        self.until_prompt()
        self.send(f"{line}\r")
        self._wait(lambda: not self._at_prompt(), "the line to be taken", 1, needed=False)

    def until(self, text: str, times: int = 1) -> None:
        """Wait until the terminal has shown a text so many times."""
        self._wait(lambda: self.text.count(text) >= times, repr(text))

    def until_prompt(self) -> None:
        self._wait(self._at_prompt, "the prompt")

    def _at_prompt(self) -> bool:
        line = self._screen.display[self._screen.cursor.y]
        return line.rstrip() == ">" and self._screen.cursor.x == 2

    def _wait(self, reached: Callable[[], bool], what: str, patience: float = PATIENCE_S, needed: bool = True) -> None:
        end = time.monotonic() + patience
        while not reached():
            if time.monotonic() > end:
                assert not needed, f"waited for {what}; there is:\n{self.text}"
                return
            self._read(0.05)

    def _read(self, seconds: float) -> None:
        if select.select([self._ours], [], [], seconds)[0]:
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # the other end was closed
                return
            self.raw += data
            self._stream.feed(data)

    def exit_code(self) -> int:
        """Wait for the program's end."""
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < end:
            self._read(0.05)
        return self.process.wait(1)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
