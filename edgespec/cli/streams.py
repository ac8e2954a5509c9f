"""The standard streams, with errors that name them."""

from __future__ import annotations

import contextlib
import shutil
import sys
import textwrap

import click

from edgespec.models.errors import RuntimeFailure, UsageError

MOST_BYTES = 64 << 20
"""Of a text that is read: more than any context holds."""


def emit(text: str, newline: bool = True) -> None:
    """Write to standard output at once.

    Raises:
        BrokenPipeError: whoever read it went away.
        RuntimeFailure: it can't be written, as on a full disk.
    """
    try:
        click.echo(text, nl=newline)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RuntimeFailure(f"standard output: can't be written: {error.strerror or error}") from None


_CONTROLS = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"} | {
    code: "\ufffd" for code in range(0x7F, 0xA0)
}


def harmless(text: str) -> str:
    """What a model says, for standard output: a terminal gets pictures of control characters instead of them."""
    return text.translate(_CONTROLS) if sys.stdout.isatty() else text


def decoded(name: str, data: bytes) -> str:
    """Text that was read from a file or stream.

    Raises:
        UsageError: not UTF-8; names the first byte that isn't.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name}: isn't UTF-8 text (byte {error.start} is 0x{data[error.start]:02x}); convert it first"
        ) from None


def notice(text: str, dim: bool = False) -> None:
    """Write to standard error, where that can be; nothing depends on it. A terminal gets lines cut between words."""
    with contextlib.suppress(OSError):
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns
            text = "\n".join(part for line in text.splitlines() for part in _wrapped(line, width))
        click.echo(click.style(text, dim=True) if dim and sys.stderr.isatty() else text, err=True)


def _wrapped(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)


def one_line(text: str) -> str:
    """Text on one line, without characters that a terminal would act on."""
    words = " ".join(text.split())
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in words)
