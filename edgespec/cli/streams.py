"""The standard streams, with errors that name them."""

from __future__ import annotations

import contextlib
import sys

import click

from edgespec.models.errors import RuntimeFailure


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


def notice(text: str) -> None:
    """Write a line to standard error, where that can be; nothing depends on it."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)
