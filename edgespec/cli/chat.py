"""`edgespec chat`: a simple loop of questions and answers."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import click

from edgespec.models.errors import ContextFull, UsageError

from .options import loaded, model_options, sampling_options

_LONGEST_LINE = 64 << 20


@click.command("chat")
@model_options
@click.option("--system", help="A system message to begin with.")
@click.option("--show-drafts", is_flag=True, help="Underline the tokens that a draft proposed.")
@sampling_options(temperature=0.7, top_k=40, top_p=0.95)
def command(model: Path | None, system: str | None, show_drafts: bool, **options: Any) -> None:
    """Talk with MODEL, a GGUF file or a pack. An empty line or Ctrl-D leaves; Ctrl-C ends an answer."""
    with loaded(model, options) as ready:
        messages = [{"role": "system", "content": system}] if system else []
        if sys.stdin.isatty():
            click.echo("Ask something. An empty line or Ctrl-D leaves; Ctrl-C ends an answer.", err=True)
        while question := _ask():
            messages.append({"role": "user", "content": question})
            messages.append({"role": "assistant", "content": _answer(ready, messages, show_drafts, options)})


def _ask() -> str:
    """The next question; nothing at the end."""
    if not sys.stdin.isatty():
        return _decoded(sys.stdin.buffer.readline(_LONGEST_LINE)).strip()
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - arrow keys and history for input()
    try:
        return input("> ").strip()
    except EOFError:
        click.echo(err=True)
        return ""
    except UnicodeDecodeError:
        click.echo("note: that wasn't UTF-8 text; say it again", err=True)
        return _ask()


def _decoded(line: bytes) -> str:
    if len(line) == _LONGEST_LINE:
        raise UsageError(f"standard input: a line of {_LONGEST_LINE >> 20} MiB, which no context holds")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input: isn't UTF-8 text (byte 0x{line[error.start]:02x})") from None


def _converse(ready: Any, messages: list[dict[str, str]], options: dict[str, Any]) -> Any:
    """Events of the next answer. Where the conversation fills the context, its oldest exchanges are forgotten."""
    first = 1 if messages[0]["role"] == "system" else 0
    while True:
        try:
            return ready.converse(messages, **options)
        except ContextFull:
            if len(messages) <= first + 1:
                raise
            del messages[first : first + 2]
            click.echo("note: the context is full; the oldest exchange is forgotten (see --ctx)", err=True)


def _answer(ready: Any, messages: list[dict[str, str]], show_drafts: bool, options: dict[str, Any]) -> str:
    parts: list[str] = []
    events = _converse(ready, messages, options)
    try:
        for event in events:
            parts.append(event.text)
            click.echo(click.style(event.text, underline=show_drafts and event.drafted), nl=False)
            sys.stdout.flush()
            stats = event.stats
    except KeyboardInterrupt:
        events.close()
        click.echo(" [stopped]")
        return "".join(parts)
    click.echo()
    click.echo(
        f"[{stats.completion_tokens} tokens, {stats.tokens_per_second:.1f} a second, "
        f"{stats.tokens_per_pass:.2f} a pass; {stats.accepted_tokens} of {stats.drafted_tokens} drafted accepted]",
        err=True,
    )
    return "".join(parts)
