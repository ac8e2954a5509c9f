"""The commands of a chat: a line that begins with a slash."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgespec.dialogue import Dialogue
from edgespec.models.checks import user_path
from edgespec.models.errors import UsageError
from edgespec.strategies import STRATEGIES

from .chat_screen import stats_table
from .streams import emit, notice, one_line

_TRUTH = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}
_WHOLE = ("max_tokens", "top_k", "seed")
_MOST_DIGITS = 18
_NUMBERS = (
    "temperature", "top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "deadline_s",
)  # fmt: skip


@dataclass(slots=True)
class Chat:
    """A dialogue, and how it is shown.

    Attributes:
        markdown: whether answers are laid out; else they are printed as they come.
        show_drafts: whether tokens that a draft proposed are shaded, which needs plain text.
        show_stats: whether a line of statistics follows each answer.
        over: set by /bye.
        again: a question that is to be asked again.
    """

    dialogue: Dialogue
    markdown: bool = False
    show_drafts: bool = False
    show_stats: bool = True
    over: bool = False
    again: str | None = None


_SHOWN = {"markdown": "markdown", "drafts": "show_drafts", "stats": "show_stats"}


def _help(_chat: Chat, _argument: str) -> None:
    from .tables import table

    notice(
        table(("", ""), [(f"{name} {usage}".strip(), text) for name, (_, usage, text) in COMMANDS.items()]).strip("\n")
    )
    notice(
        'Enter sends, Alt-Enter begins a new line, """ begins and ends a block; Ctrl-C stops an answer, Ctrl-D leaves.'
    )


def _clear(chat: Chat, _argument: str) -> None:
    chat.dialogue.clear()
    notice("forgotten; the system message stays")


def _system(chat: Chat, argument: str) -> None:
    if argument:
        chat.dialogue.system = "" if argument == "none" else argument
    notice(f"system: {one_line(chat.dialogue.system) or 'none'}")


def _set(chat: Chat, argument: str) -> None:
    name, _, text = argument.partition(" ")
    if name and text:
        _change(chat, name, text.strip())
    elif name and name not in (*_WHOLE, *_NUMBERS, *_SHOWN):
        raise UsageError(f"/set {name}: no such setting; /set lists them")
    for key, value in _settings(chat).items():
        if not name or key == name:
            notice(f"{key} {value}")


def _change(chat: Chat, name: str, text: str) -> None:
    if name in _SHOWN:
        if text.lower() not in _TRUTH:
            raise UsageError(f"/set {name} {text}: on or off is needed")
        setattr(chat, _SHOWN[name], _TRUTH[text.lower()])
    elif name in _WHOLE or name in _NUMBERS:
        chat.dialogue.set(name, None if text == "default" else _number(name, text))
    else:
        raise UsageError(f"/set {name}: no such setting; /set lists them")


def _number(name: str, text: str) -> float | int:
    try:
        if name in _WHOLE and len(text) > _MOST_DIGITS:
            raise ValueError
        return int(text) if name in _WHOLE else float(text)
    except ValueError:
        raise UsageError(f"/set {name} {text}: a number is needed, or default") from None


def _settings(chat: Chat) -> dict[str, Any]:
    options = {name: chat.dialogue.options.get(name) for name in (*_WHOLE, *_NUMBERS)}
    shown = {name: "on" if getattr(chat, attribute) else "off" for name, attribute in _SHOWN.items()}
    return {name: "default" if value is None else value for name, value in options.items()} | shown


def _show(chat: Chat, _argument: str) -> None:
    dialogue = chat.dialogue
    model, said = dialogue.model, sum(message["role"] == "user" for message in dialogue.messages)
    tokens = len(model.prompt_tokens(dialogue.messages)) if dialogue.messages else 0
    notice(f"model     {getattr(model.runtime, 'path', model.runtime.name)}")
    notice(f"strategy  {model.strategy}")
    notice(f"context   {tokens} of {model.runtime.context_length} tokens, {said} questions")
    notice(f"system    {one_line(dialogue.system) or 'none'}")


def _save(chat: Chat, argument: str) -> None:
    path = _path("/save", argument)
    chat.dialogue.save(path)
    notice(f"saved to {path}")


def _load(chat: Chat, argument: str) -> None:
    path = _path("/load", argument)
    chat.dialogue.load(path)
    notice(f"{path}: {len(chat.dialogue.messages)} messages")


def _path(command: str, argument: str) -> Path:
    if not argument:
        raise UsageError(f"{command} needs a file")
    return user_path(command, argument)


def _retry(chat: Chat, _argument: str) -> None:
    chat.again = chat.dialogue.undo()


def _undo(chat: Chat, _argument: str) -> None:
    question = chat.dialogue.undo()
    notice(f"taken back: {one_line(question[:60])}{'…' if len(question) > 60 else ''}")


def _strategy(chat: Chat, argument: str) -> None:
    if argument:
        chat.dialogue.model.use(argument)
    notice(f"strategy {chat.dialogue.model.strategy} (of {', '.join(STRATEGIES)})")


def _stats(chat: Chat, _argument: str) -> None:
    notice(stats_table(chat.dialogue))


def _copy(chat: Chat, _argument: str) -> None:
    """Through the terminal (OSC 52), which also works over ssh; without one, to standard output."""
    answer = chat.dialogue.answer
    if not answer:
        raise UsageError("/copy: there is no answer yet")
    if sys.stdout.isatty():
        emit(f"\x1b]52;c;{base64.b64encode(answer.encode('utf-8', 'replace')).decode()}\x07", newline=False)
        notice("copied, if this terminal lets programs write its clipboard")
    else:
        emit(answer)


def _bye(chat: Chat, _argument: str) -> None:
    chat.over = True


Run = Callable[[Chat, str], None]
COMMANDS: dict[str, tuple[Run, str, str]] = {
    "/help": (_help, "", "show this"),
    "/clear": (_clear, "", "forget the conversation"),
    "/system": (_system, "[TEXT|none]", "show or change the system message"),
    "/set": (_set, "[NAME [VALUE]]", "show or change settings"),
    "/show": (_show, "", "show model, strategy and how full the context is"),
    "/save": (_save, "FILE", "write the conversation to a file"),
    "/load": (_load, "FILE", "go on with a saved conversation"),
    "/retry": (_retry, "", "answer the last question again"),
    "/undo": (_undo, "", "take back the last question and its answer"),
    "/strategy": (_strategy, "[NAME]", "show or change who drafts"),
    "/stats": (_stats, "", "show all figures of the last answer"),
    "/copy": (_copy, "", "copy the last answer"),
    "/bye": (_bye, "", "leave"),
}


def run_command(chat: Chat, line: str) -> None:
    """Run a line that begins with a slash.

    Raises:
        UsageError: no such command, or an argument that can't be right.
    """
    name, _, argument = line.partition(" ")
    if name not in COMMANDS:
        raise UsageError(f"{name}: no such command; /help lists them (begin with a blank to send it as it is)")
    COMMANDS[name][0](chat, argument.strip())
