"""`edgespec chat`: questions and answers, on a terminal or through a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from edgespec.models.errors import ContextFull, EdgespecError, UsageError

from .options import loaded, model_options, sampling_options
from .streams import emit, notice, one_line

if TYPE_CHECKING:
    from .chat_commands import Chat
    from .chat_input import Asker, Line


@click.command("chat")
@model_options
@click.option("--system", help="A system message to begin with.")
@click.option("--show-drafts", is_flag=True, help="Shade the tokens that a draft proposed (no Markdown then).")
@click.option("--markdown/--no-markdown", default=None, help="Lay answers out. [default: on a terminal]")
@click.option("--stats/--no-stats", default=True, show_default=True, help="A line of figures after each answer.")
@sampling_options(temperature=0.7, top_k=40, top_p=0.95)
def command(model: str | None, system: str | None, show_drafts: bool, markdown: bool | None, stats: bool,
            **options: Any) -> None:  # fmt: skip
    """Talk with MODEL: a GGUF file, a pack, or a name from `edgespec list`.

    /help lists commands. Ctrl-C stops an answer, Ctrl-D leaves. From a pipe each line is a question, or each block
    between triple quotes.
    """
    from edgespec.dialogue import Dialogue

    from .chat_commands import COMMANDS, Chat
    from .chat_input import PipeAsker, TerminalAsker

    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    with loaded(model, options) as ready:
        chat = Chat(
            Dialogue(ready, system, options),
            markdown=sys.stdout.isatty() if markdown is None else markdown,
            show_drafts=show_drafts,
            show_stats=stats,
        )
        if not on_terminal:
            _talk(chat, PipeAsker(), False)
            return
        notice("Ask something; /help lists commands, Ctrl-C stops an answer, Ctrl-D leaves.")
        _talk(chat, TerminalAsker(tuple(COMMANDS)), True)


def _talk(chat: Chat, asker: Asker, on_terminal: bool) -> None:
    """Until the person leaves. An interrupt never ends it on a terminal, and a mistake is told and forgiven."""
    while not chat.over:
        try:
            line = asker.ask()
            if line is None:
                return
            _take(chat, line)
        except KeyboardInterrupt:
            if not on_terminal:
                raise
            notice("[Ctrl-D or /bye leaves]")
        except (UsageError, ContextFull, OSError) as error:
            if not on_terminal or isinstance(error, BrokenPipeError):
                raise
            text = str(error) if isinstance(error, EdgespecError) else f"{error.filename}: {error.strerror}"
            notice(f"Error: {one_line(text)}")


def _take(chat: Chat, line: Line) -> None:
    from .chat_commands import run_command

    question: str | None = line.text
    if line.is_command:
        run_command(chat, line.text)
        question, chat.again = chat.again, None
    if question:
        _answer(chat, question)


def _answer(chat: Chat, question: str) -> None:
    from .chat_screen import show_markdown, show_plain, show_stats

    events = chat.dialogue.ask(question)
    if chat.dialogue.forgotten:
        notice(f"note: the context is full; the {chat.dialogue.forgotten} oldest messages are forgotten (see --ctx)")
    try:
        if chat.markdown and not chat.show_drafts:
            show_markdown(events)
        else:
            show_plain(events, chat.show_drafts)
    except KeyboardInterrupt:
        events.close()
        emit(" [stopped]")
        if not sys.stdin.isatty():
            raise
        return
    if chat.show_stats:
        show_stats(chat.dialogue)
