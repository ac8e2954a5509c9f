"""A loaded model: what `edgespec.load` returns, and what the commands run on."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from edgespec.models.checks import check_text, shown
from edgespec.models.errors import ContextFull, UsageError
from edgespec.runtimes import Runtime

from .controller import Controller
from .conversation import Conversation
from .events import Answer, Event
from .options import GenerationOptions
from .session import Session
from .templates import CHATML, ChatTemplate, Message


class Chooser(Protocol):
    """Makes a model's controllers; see `edgespec.loading`."""

    def controller(self, strategy: str) -> Controller:
        """The controller of a strategy, the same one each time."""

    def close(self) -> None:
        """Free what drafts."""


class Model:
    """A target, its drafters, and one session. Made by `load`; closes as a context manager."""

    def __init__(self, runtime: Runtime, chooser: Chooser, strategy: str, template: ChatTemplate | None) -> None:
        self.runtime, self.strategy, self.template = runtime, strategy, template
        self._chooser = chooser
        self._lock = threading.RLock()
        self._sessions: list[Session] = []
        self._session = self._new_session()

    def generate(
        self, prompt: str | Sequence[int], *, raw: bool = False, **options: Any
    ) -> Generator[Event, None, None]:
        """Generate an answer to a prompt.

        Args:
            prompt: text, or tokens, which are taken as they are.
            raw: continue the text instead of answering it: no chat template is applied.
            **options: fields of `GenerationOptions` and `SamplingOptions`.

        Returns:
            Events as they become certain; the last one has `finish_reason` and `stats`.

        Raises:
            UsageError: a bad option or an empty prompt.
            ContextFull: the prompt doesn't fit.
            RuntimeFailure: the model was closed.
        """
        self._session.require_open()
        if isinstance(prompt, str):
            check_text("the prompt", prompt)
            if raw or self.template is None:
                tokens = self._encode(prompt, special=False)
            else:
                tokens = self._encode(self.template.render([{"role": "user", "content": prompt}]), special=True)
        elif isinstance(prompt, Iterable) and not isinstance(prompt, (bytes, bytearray)):
            tokens = [*prompt]
        else:
            raise UsageError(f"the prompt is {shown(prompt)}; text or a list of tokens is needed")
        return self._session.generate(tokens, GenerationOptions.of(**options))

    def converse(self, messages: Iterable[Message], **options: Any) -> Generator[Event, None, None]:
        """Generate the next message of a conversation; a model without a chat template gets ChatML."""
        return self._conversed(self._session, messages, options)

    def _conversed(
        self, session: Session, messages: Iterable[Message], options: dict[str, Any]
    ) -> Generator[Event, None, None]:
        if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
            raise UsageError(f"messages is {shown(messages)}; a list of messages is needed")
        session.require_open()
        return session.generate(self.prompt_tokens(messages), GenerationOptions.of(**options))

    def prompt_tokens(self, messages: Iterable[Message]) -> list[int]:
        """The prompt of a conversation's next message, as `generate` takes it."""
        if self.template is None:
            self.template = ChatTemplate(CHATML, "ChatML")
        return self._encode(self.template.render(list(messages)), special=True)

    def use(self, strategy: str) -> None:
        """Let another strategy draft, from the next answer on. What was loaded or learned for the last one is kept.

        Raises:
            UsageError: the model can't run it, or an answer is being generated.
        """
        self._session.require_open()
        controller = self._chooser.controller(strategy)
        with self._lock:
            for session in self._sessions:
                session.use(controller, strategy)
            self.strategy = strategy

    def conversation(self, system: str | None = None) -> Conversation:
        """A conversation with a cache of its own, so that several can go on at the same time.

        Their number is that of `sequences` given to `load`, less one for `generate` and `chat`; each takes the memory
        of a whole context.

        Raises:
            ContextFull: all of them are taken.
        """
        self._session.require_open()
        messages: list[Message] = []
        if system is not None:
            check_text("system", system)
            messages.append({"role": "system", "content": system})
        return Conversation(self._conversed, self._new_session(), messages)

    def _new_session(self) -> Session:
        session = Session(self.runtime, self._chooser.controller(self.strategy), self.strategy, self._lock)
        self._sessions = [*(s for s in self._sessions if not s.closed), session]
        return session

    def chat(self, messages: Iterable[Message], **options: Any) -> Answer:
        """The next message of a conversation, whole."""
        return collect(self.converse(messages, **options))

    def complete(self, prompt: str | Sequence[int], **options: Any) -> Answer:
        """The answer to a prompt, whole."""
        return collect(self.generate(prompt, **options))

    def _encode(self, text: str, *, special: bool) -> list[int]:
        vocabulary, room = self.runtime.vocabulary, self.runtime.context_length
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > room * vocabulary.longest:  # known without tokenizing, which takes seconds for each million
            raise ContextFull(f"a prompt of {size} bytes has more than the {room} tokens that the context holds")
        tokens = vocabulary.encode(text, special=special, add_bos=True)
        return tokens or ([] if vocabulary.bos is None else [vocabulary.bos])

    def close(self) -> None:
        """Free the memory of target and draft; an answer that another thread generates ends at its next step."""
        for session in self._sessions:
            session.close()
        if self.template is not None:
            self.template.close()
        self._chooser.close()
        self.runtime.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def collect(events: Iterator[Event]) -> Answer:
    """The answer that events add up to."""
    text: list[str] = []
    tokens: list[int] = []
    try:
        for event in events:
            text.append(event.text)
            tokens += event.tokens
            if event.finish_reason is not None and event.stats is not None:
                return Answer("".join(text), tuple(tokens), event.finish_reason, event.stats)
    finally:
        if isinstance(events, Generator):  # an interrupt's traceback would hold it, and so the model, for long
            events.close()
    raise UsageError("the events were already consumed")
