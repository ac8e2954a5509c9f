"""A conversation: its messages, and a cache in which what was said before stays computed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

from edgespec.models.checks import check_text

from .events import Event
from .session import Session
from .templates import Message

Converse = Callable[[Session, Iterable[Message], dict[str, Any]], Generator[Event, None, None]]
"""Generates the next message on a session."""


class Conversation:
    """Made by `Model.conversation`; closes as a context manager, which frees its place for another one.

    Attributes:
        messages: what was said so far, as chat templates take it. May be changed between two answers.
    """

    def __init__(self, converse: Converse, session: Session, messages: list[Message]) -> None:
        self._converse, self._session, self.messages = converse, session, messages

    def say(self, text: str, **options: Any) -> Generator[Event, None, None]:
        """Say something, and generate the answer. Both become part of the conversation when the answer ends.

        An answer that is cut short, by a deadline, a cancel or by closing the generator, counts as far as it came;
        after an error nothing was said.

        Args:
            **options: fields of `GenerationOptions` and `SamplingOptions`.

        Raises:
            UsageError, ContextFull, RuntimeFailure: as `Model.generate`.
        """
        check_text("what is said", text)
        asked = [*self.messages, {"role": "user", "content": text}]
        return self._answer(asked, self._converse(self._session, asked, options))

    def _answer(self, asked: list[Message], events: Generator[Event, None, None]) -> Generator[Event, None, None]:
        said: list[str] = []
        try:
            for event in events:
                said.append(event.text)
                yield event
        except GeneratorExit:
            events.close()
            self.messages = [*asked, {"role": "assistant", "content": "".join(said)}]
            raise
        self.messages = [*asked, {"role": "assistant", "content": "".join(said)}]

    def close(self) -> None:
        """End its answer, in whatever thread, and free its cache."""
        self._session.close()

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
