"""`edgespec chat`: a simple loop of questions and answers."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import click

from edgespec.models.errors import ContextFull, UsageError

from .options import loaded, model_options, sampling_options
from .streams import MOST_BYTES, decoded, emit, notice


@click.command("chat")
@model_options
@click.option("--system", help="A system message to begin with.")
@click.option("--show-drafts", is_flag=True, help="Underline the tokens that a draft proposed.")
@sampling_options(temperature=0.7, top_k=40, top_p=0.95)
def command(model: str | None, system: str | None, show_drafts: bool, **options: Any) -> None:
    """Talk with MODEL: a GGUF file, a pack, or a name from `edgespec list`.

    An empty line or Ctrl-D leaves; Ctrl-C ends an answer.
    """
    with loaded(model, options) as ready:
        messages = [{"role": "system", "content": system}] if system else []
        if sys.stdin.isatty():
            notice("Ask something. An empty line or Ctrl-D leaves; Ctrl-C ends an answer.")
        while True:
            try:
                question = _ask()
                if not question:
                    return
                messages.append({"role": "user", "content": question})
                messages.append({"role": "assistant", "content": _answer(ready, messages, show_drafts, options)})
            except KeyboardInterrupt:  # at the prompt, or just beside an answer
                if not sys.stdin.isatty():
                    raise
                if messages and messages[-1]["role"] == "user":
                    messages.pop()
                notice(" [an empty line or Ctrl-D leaves]")


def _ask() -> str:
    """The next question; nothing at the end."""
    if not sys.stdin.isatty():
        try:
            line = sys.stdin.buffer.readline(MOST_BYTES)
        except OSError as error:
            raise UsageError(f"standard input: can't be read: {error.strerror or error}") from None
        if len(line) == MOST_BYTES:
            raise UsageError(f"standard input: a line of {MOST_BYTES >> 20} MiB, which no context holds")
        return decoded("standard input", line).strip()
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - arrow keys and history for input()
    try:
        return input("> ").strip()
    except EOFError:
        notice("")
        return ""
    except UnicodeDecodeError:
        notice("note: that wasn't UTF-8 text; say it again")
        return _ask()


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
            notice("note: the context is full; the oldest exchange is forgotten (see --ctx)")


def _answer(ready: Any, messages: list[dict[str, str]], show_drafts: bool, options: dict[str, Any]) -> str:
    parts: list[str] = []
    events = None
    try:
        events = _converse(ready, messages, options)
        for event in events:
            parts.append(event.text)
            emit(click.style(event.text, underline=show_drafts and event.drafted), newline=False)
            stats = event.stats
    except KeyboardInterrupt:
        if events is not None:
            events.close()
        emit(" [stopped]")
        return "".join(parts)
    emit("")
    notice(
        f"[{stats.completion_tokens} tokens, {stats.tokens_per_second:.1f} a second, "
        f"{stats.tokens_per_pass:.2f} a pass; {stats.accepted_tokens} of {stats.drafted_tokens} drafted accepted]"
    )
    return "".join(parts)
