"""The entry point: finds commands when they are asked for, and turns errors into one line and an exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from importlib import import_module
from typing import Any

import click

from edgespec import __version__

from .streams import notice, one_line

COMMANDS = {
    "bench": "Measure strategies against plain decoding.",
    "chat": "Talk with a model.",
    "convert": "Make a pack of a checkpoint or a GGUF: quantize it, and check the result.",
    "generate": "Answer one prompt.",
    "info": "Show versions, devices, memory and CPU features.",
    "list": "List the models on this machine.",
    "rm": "Delete a model.",
    "show": "Show what a model is, and what could draft for it.",
}
"""Command -> its one-line help. Each is `command` in the module of its name, imported when it is run."""
_debugging = False


class _ReaderLeft(Exception):  # noqa: N818 - not an error
    """Whoever read our output went away, as `| head` does."""


class _LazyGroup(click.Group):
    """Imports a command's module when the command is used: `edgespec --help` loads none of them."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # which click would turn into exit code 1
            raise _ReaderLeft from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"edgespec.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="edgespec")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Run local language models faster, without changing what they say."""
    global _debugging
    _debugging = debug


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    _replace_closed_streams()
    if threading.current_thread() is threading.main_thread():
        # ends like an interrupt, so that what is half-written is removed
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        status = cli.main(standalone_mode=False)
        sys.stdout.flush()
    except (click.exceptions.Exit, click.Abort, click.ClickException, SystemExit, KeyboardInterrupt) as error:
        status = _report(error)
    except BaseException as error:
        if _debugging and not isinstance(error, _ReaderLeft):
            raise
        status = _report(error)
    _leave(status if isinstance(status, int) else 0)


def _replace_closed_streams() -> None:
    """Stand-ins for standard streams that were closed before we began, as `>&-` and some services do."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # the lowest number that is free is that stream's own
            handle = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
            setattr(sys, name, os.fdopen(handle, "r" if number == 0 else "w", encoding="utf-8"))


def _report(error: BaseException) -> int:
    """Print an error as a person should see it; returns the exit code."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, (_ReaderLeft, BrokenPipeError)):
        return 0
    if isinstance(error, click.ClickException):
        with contextlib.suppress(OSError):
            error.show()
        return error.exit_code
    code, line = _described(error)
    notice(line)
    return code


def _described(error: BaseException) -> tuple[int, str]:
    """Exit code and line of an error."""
    from edgespec.models.errors import EdgespecError, UsageError

    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return 130, "interrupted"
    if isinstance(error, EdgespecError):
        return 2 if isinstance(error, UsageError) else 1, f"Error: {one_line(str(error))}"
    if isinstance(error, MemoryError):
        return 1, "Error: out of memory; try a smaller --ctx or a smaller model"
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return 1, f"Error: {one_line(f'{place}{error.strerror or error}')}"
    return 1, f"Error: {one_line(f'{type(error).__name__}: {error}')}. This is a bug; --debug shows where."


def _leave(status: int) -> None:
    try:
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        # Python would complain once more while it shuts down
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(status)


if __name__ == "__main__":
    main()
