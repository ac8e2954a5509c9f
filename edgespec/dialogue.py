"""What a chat holds: the messages, how to answer, and what the last answer took. No terminal in here."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Generator
from pathlib import Path
from statistics import median
from typing import Any

from edgespec.models.cache import replacing
from edgespec.models.checks import check_text, shown
from edgespec.models.errors import ContextFull, UsageError
from edgespec.models.json_file import read_json

from .events import Event, Stats
from .model import Model
from .options import GenerationOptions

_MOST_BYTES = 64 << 20
_ROLES = ("system", "user", "assistant")
_REMEMBERED = 8
"""Answers whose plain passes say how fast plain decoding is now."""


class Dialogue:
    """A conversation with one person on a loaded model.

    Attributes:
        messages: system message, questions and answers, as chat templates take them.
        options: of `Model.generate`, for the next answers.
        stats: of the last answer; None before the first.
        forgotten: messages that were dropped before the last answer, to make room.
    """

    def __init__(self, model: Model, system: str | None = None, options: dict[str, Any] | None = None) -> None:
        self.model, self.options = model, dict(options or {})
        self.messages: list[dict[str, str]] = []
        self.stats: Stats | None = None
        self.forgotten = 0
        self._plain: deque[float] = deque(maxlen=_REMEMBERED)
        if system:
            self.system = system

    @property
    def system(self) -> str:
        """The system message; empty: none."""
        return self.messages[0]["content"] if self._first else ""

    @system.setter
    def system(self, text: str) -> None:
        check_text("the system message", text)
        self.messages[: self._first] = [{"role": "system", "content": text}] if text else []

    @property
    def _first(self) -> int:
        """Where questions and answers begin."""
        return int(bool(self.messages) and self.messages[0]["role"] == "system")

    @property
    def answer(self) -> str:
        """The last answer; empty where there is none."""
        last = self.messages[-1:] or [{"role": "", "content": ""}]
        return last[0]["content"] if last[0]["role"] == "assistant" else ""

    def ask(self, text: str) -> Generator[Event, None, None]:
        """Say something; events of the answer. One that is cut short counts as far as it came.

        Raises:
            ContextFull: even alone the question doesn't fit; nothing was said.
            UsageError: not text, or an option out of range.
        """
        check_text("what is said", text)
        asked = [*self.messages, {"role": "user", "content": text}]
        count = len(asked)
        prompt, asked = self._fitted(asked)
        self.forgotten = count - len(asked)
        return self._answered(asked, self.model.generate(prompt, **self.options))

    def _answered(
        self, asked: list[dict[str, str]], events: Generator[Event, None, None]
    ) -> Generator[Event, None, None]:
        said: list[str] = []
        self.messages = asked
        try:
            for event in events:
                said.append(event.text)
                if event.stats is not None:
                    self.stats = event.stats
                    self._plain.extend([event.stats.plain_pass_s] if event.stats.plain_pass_s else [])
                yield event
        except GeneratorExit:
            events.close()
            raise
        finally:
            if "".join(said):
                self.messages.append({"role": "assistant", "content": "".join(said)})
            else:  # nothing came: as if it had not been asked
                self.messages.pop()

    def _fitted(self, messages: list[dict[str, str]]) -> tuple[list[int], list[dict[str, str]]]:
        """The prompt's tokens, and the messages in it: without the oldest turns where they leave no room to answer.

        When something has to go, about half of the context is made free: each time that the beginning changes, all of
        the prompt has to be computed again.
        """
        room = self.model.runtime.context_length
        most = self.options.get("max_tokens")
        reserve = room // 4 if most is None else min(most, room // 4)
        first, limit = self._first, room - reserve
        while True:
            try:
                tokens = self.model.prompt_tokens(messages)
            except ContextFull:
                tokens = [0] * (room + 1)
            if len(tokens) <= limit:
                return tokens, messages
            rest = [i for i, message in enumerate(messages) if i > first and message["role"] == "user"]
            if not rest:
                if len(tokens) <= room:
                    return tokens, messages
                raise ContextFull(
                    f"what was said doesn't fit into the context of {room} tokens; shorten it or raise --ctx"
                )
            messages, limit = messages[:first] + messages[rest[0] :], min(limit, room // 2)

    def speed_up(self) -> float | None:
        """The last answer's speed over plain decoding's, by passes without a draft timed in the last answers.

        None where none was timed yet.
        """
        if self.stats is None or not self._plain:
            return None
        return self.stats.tokens_per_second * median(self._plain)

    def undo(self) -> str:
        """Take back the last question and its answer; returns the question.

        Raises:
            UsageError: nothing was said.
        """
        places = [i for i, message in enumerate(self.messages) if message["role"] == "user"]
        if not places:
            raise UsageError("nothing was said yet")
        question = self.messages[places[-1]]["content"]
        del self.messages[places[-1] :]
        return question

    def clear(self) -> None:
        """Forget all but the system message."""
        del self.messages[self._first :]

    def set(self, name: str, value: Any) -> None:
        """Change an option of the next answers; None: its default.

        Raises:
            UsageError: no such option, or a value out of range.
        """
        changed = {key: old for key, old in self.options.items() if key != name}
        if value is not None:
            changed[name] = value
        GenerationOptions.of(**changed)
        self.options = changed

    def save(self, path: Path) -> None:
        """Write the messages to a JSON file, whole or not at all."""
        content = {"format": 1, "messages": self.messages}
        with replacing(path) as file:
            file.write((json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass"))

    def load(self, path: Path) -> None:
        """Go on with what `save` wrote.

        Raises:
            UsageError: not such a file; what was said here stays.
        """
        self.messages = _read(path)


def _read(path: Path) -> list[dict[str, str]]:
    try:
        content = read_json(path, _MOST_BYTES, "name a conversation that /save wrote", UsageError)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    messages = content.get("messages") if isinstance(content, dict) and content.get("format") == 1 else None
    if not isinstance(messages, list):
        raise UsageError(f"{path}: isn't a conversation that /save wrote")
    for i, message in enumerate(messages):
        fine = isinstance(message, dict) and set(message) == {"role", "content"} and message["role"] in _ROLES
        if not fine or not isinstance(message["content"], str) or (message["role"] == "system" and i > 0):
            raise UsageError(f"{path}: message {i + 1} is {shown(message)}; role and content are needed")
        check_text(f"{path}: message {i + 1}", message["content"])
    return messages
