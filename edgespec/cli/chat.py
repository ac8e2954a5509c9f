"""`edgespec chat`: a simple loop of questions and answers."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import click

from .options import loaded, model_options, sampling_options


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
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - arrow keys and history for input()
    try:
        return input("> ").strip()
    except EOFError:
        click.echo(err=True)
        return ""


def _answer(ready: Any, messages: list[dict[str, str]], show_drafts: bool, options: dict[str, Any]) -> str:
    parts: list[str] = []
    events = ready.converse(messages, **options)
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
