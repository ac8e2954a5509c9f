"""One sequence of a loaded model and the answers generated on it."""

from __future__ import annotations

import statistics
import threading
import time
import weakref
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

from edgespec.models.checks import whole
from edgespec.models.errors import ContextFull, RuntimeFailure, UsageError
from edgespec.runtimes.base import Runtime
from edgespec.runtimes.memory import peak_memory_bytes

from .controller import Controller
from .drafters.base import Context
from .drafters.draft_model import common_prefix
from .engine import Step, decode
from .events import Event, FinishReason, Stats
from .options import GenerationOptions
from .sampling import Sampler
from .text import TextStream


@dataclass(slots=True)
class _Tally:
    """Counts of one answer while it grows."""

    prompt: int
    cached: int = 0
    started: float = field(default_factory=time.perf_counter)
    prefilled: float = 0.0
    first_token: float = 0.0
    completion: int = 0
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    drafted_by_depth: list[int] = field(default_factory=list)
    accepted_by_depth: list[int] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    last: float = 0.0

    def count(self, step: Step) -> None:
        now = time.perf_counter()
        self.first_token = self.first_token or now
        if not step.drafted:
            self.plain.append(now - (self.last or self.prefilled))
        self.last = now
        self.completion += len(step.tokens)
        self.passes += 1
        self.drafted += step.drafted
        self.accepted += min(step.accepted, len(step.tokens))
        depth = max(step.outcome.tree.depths()) if step.drafted else 0
        for counts, reached in ((self.drafted_by_depth, depth), (self.accepted_by_depth, step.accepted)):
            counts.extend([0] * (depth - len(counts)))
            for i in range(reached):
                counts[i] += 1

    def stats(self, strategy: str, runtime: str) -> Stats:
        now = time.perf_counter()
        seconds = now - (self.prefilled or now)
        return Stats(
            strategy=strategy,
            runtime=runtime,
            prompt_tokens=self.prompt,
            cached_tokens=self.cached,
            completion_tokens=self.completion,
            target_passes=self.passes,
            drafted_tokens=self.drafted,
            accepted_tokens=self.accepted,
            tokens_per_second=self.completion / seconds if seconds > 0 else 0.0,
            time_to_first_token_s=(self.first_token or now) - self.started,
            peak_memory_bytes=peak_memory_bytes(),
            drafted_by_depth=tuple(self.drafted_by_depth),
            accepted_by_depth=tuple(self.accepted_by_depth),
            plain_pass_s=statistics.median(self.plain) if self.plain else 0.0,
        )


class _Interruption:
    """Says when to stop before the end, and why.

    Args:
        closing: set when the session is closed meanwhile.
    """

    def __init__(self, options: GenerationOptions, started: float, closing: threading.Event) -> None:
        self._cancels = [event for event in (options.cancel, closing) if event is not None]
        self._end = None if options.deadline_s is None else started + options.deadline_s
        self.reason: FinishReason | None = None

    def __call__(self) -> bool:
        if any(event.is_set() for event in self._cancels):
            self.reason = "cancelled"
        elif self._end is not None and time.perf_counter() >= self._end:
            self.reason = "deadline"
        return self.reason is not None


class _Transcript:
    """Turns tokens into events of whole characters."""

    def __init__(self, stream: TextStream) -> None:
        self._stream = stream
        self._waiting: list[int] = []
        self.last: int | None = None

    @property
    def stopped(self) -> bool:
        return self._stream.stopped

    def take(self, step: Step) -> list[Event]:
        """Events for a step's tokens; those after a stop string are removed from `step.tokens`."""
        events = []
        for index, token in enumerate(step.tokens):
            self._waiting.append(token)
            self.last = token
            text = self._stream.feed(token)
            if text:
                events.append(Event(text, tuple(self._waiting), drafted=index < step.accepted))
                self._waiting.clear()
            if self.stopped:
                del step.tokens[index + 1 :]
                break
        return events

    def finish(self, reason: FinishReason, stats: Stats) -> Event:
        return Event(self._stream.flush(), tuple(self._waiting), finish_reason=reason, stats=stats)


class _Answer:
    """Stands for an answer that is being generated, and lives as long."""


class Session:
    """Generates answers on one sequence. What two prompts have in common at their beginning is computed once.

    Each step of an answer holds a lock, so that closing from another thread waits for the step's end, not for the
    answer's, and never frees what a step still uses.

    Args:
        strategy: only for the statistics.
        lock: shared by the sessions of one runtime, of which one can do a step at a time.
    """

    def __init__(
        self, runtime: Runtime, controller: Controller, strategy: str, lock: threading.RLock | None = None
    ) -> None:
        self._runtime, self._controller, self._strategy = runtime, controller, strategy
        self._sequence = runtime.open()
        self._tokens: list[int] = []
        """What the cache holds, and perhaps more."""
        self._lock = lock or threading.RLock()
        self._closing = threading.Event()
        self._answer: weakref.ref[_Answer] | None = None
        """The answer that is being generated: a reference that also ends where an interrupt kept us from saying so."""
        self._steps_before: Generator[Step, None, None] | None = None
        """Of the last answer; closed once more before the next one, for the same reason."""

    def generate(self, prompt: Sequence[int], options: GenerationOptions) -> Generator[Event, None, None]:
        """Events of one answer; the last one carries the reason of its end and the statistics.

        Raises:
            ContextFull: the prompt doesn't fit.
            UsageError: an empty prompt, or another answer of this session is being generated.
            RuntimeFailure: the session was closed.
        """
        self.require_open()
        tokens = [whole("a token of the prompt", token) for token in prompt]
        self._check(tokens, options)
        return self._events(tokens, options, _Tally(len(tokens)))

    def use(self, controller: Controller, strategy: str) -> None:
        """Let another controller choose, from the next answer on.

        Raises:
            UsageError: an answer is being generated.
        """
        with self._lock:
            self._require_idle()
            self._controller, self._strategy = controller, strategy

    def _require_idle(self) -> None:
        if self._answer is not None and self._answer() is not None:
            raise UsageError("this conversation has another answer under way; finish or close that one first")

    def close(self) -> None:
        """End the answer that is being generated, in whatever thread, and wait for the end of its step."""
        self._closing.set()
        with self._lock:
            self._runtime.release(self._sequence)

    @property
    def closed(self) -> bool:
        return self._closing.is_set()

    def require_open(self) -> None:
        """Raises `RuntimeFailure` where the session was closed."""
        if self.closed:
            raise RuntimeFailure("this model was closed")

    def _check(self, prompt: Sequence[int], options: GenerationOptions) -> None:
        size, room = self._runtime.vocabulary.size, self._runtime.context_length
        if not prompt:
            raise UsageError("the prompt is empty")
        if any(token >= size for token in prompt):
            raise UsageError(f"the prompt holds a token outside the vocabulary of {size}")
        if any(token >= size for token in options.sampling.logit_bias):
            raise UsageError(f"logit_bias names a token outside the vocabulary of {size}")
        if len(prompt) > room:
            raise ContextFull(
                f"the prompt has {len(prompt)} tokens and the context holds {room}; shorten it or raise --ctx"
            )

    def _events(self, prompt: list[int], options: GenerationOptions, tally: _Tally) -> Generator[Event, None, None]:
        own = _Answer()
        interruption = _Interruption(options, tally.started, self._closing)
        transcript = _Transcript(TextStream(self._runtime.vocabulary.piece, options.stop))
        steps = self._steps(prompt, options, tally, interruption)
        try:
            with self._lock:
                self._require_idle()
                self._answer = weakref.ref(own)
                if self._steps_before is not None:
                    self._steps_before.close()
                self._steps_before = steps
            while events := self._advance(steps, transcript, tally):
                yield from events
            ended = transcript.stopped or transcript.last in self._runtime.vocabulary.end_tokens
            reason: FinishReason = "stop" if ended else interruption.reason or "length"
            yield transcript.finish(reason, tally.stats(self._strategy, self._runtime.name))
        finally:
            try:
                with self._lock:
                    steps.close()
            finally:
                if self._answer is not None and self._answer() is own:
                    self._answer = None

    def _advance(self, steps: Iterator[Step], transcript: _Transcript, tally: _Tally) -> list[Event]:
        """What the next steps say, as soon as it is something; nothing at the answer's end."""
        events: list[Event] = []
        while not events and not transcript.stopped:
            with self._lock:
                self.require_open()
                step = next(steps, None)
                if step is None:
                    break
                offered = len(step.tokens)
                events = transcript.take(step)
                tally.count(step)
                if len(step.tokens) < offered:  # what comes after a stop string was never said
                    del self._tokens[len(self._tokens) - offered + len(step.tokens) :]
        return events

    def _steps(
        self, prompt: list[int], options: GenerationOptions, tally: _Tally, interruption: _Interruption
    ) -> Generator[Step, None, None]:
        """Prefill, then the loop."""
        if options.max_tokens == 0 or not self._prefill(prompt, options, tally, interruption):
            return
        tally.prefilled = time.perf_counter()
        sampling = options.sampling
        vocabulary = self._runtime.vocabulary
        # more text than the context could hold predicts nothing
        prediction = options.prediction[: self._runtime.context_length * vocabulary.longest]
        predicted = vocabulary.encode(prediction, special=False, add_bos=False) if prediction else []
        context = Context(self._tokens, len(prompt), Sampler(sampling), sampling.seed, tuple(predicted))
        yield from decode(
            self._runtime, self._sequence, context, self._controller,
            limit=self._runtime.context_length if options.max_tokens is None else options.max_tokens,
            end_tokens=vocabulary.end_tokens, stop=interruption,
        )  # fmt: skip

    def _prefill(
        self, prompt: list[int], options: GenerationOptions, tally: _Tally, interruption: _Interruption
    ) -> bool:
        """Bring the cache to the prompt without its last token; False where it was interrupted."""
        runtime = self._runtime
        keep = common_prefix(self._tokens[: self._sequence.length], prompt[:-1])
        if keep < self._sequence.length and not runtime.can_rewind:
            keep = 0
        runtime.truncate(self._sequence, keep)
        self._tokens, tally.cached = prompt, keep
        wanted, report = len(prompt) - 1, options.on_prefill

        def interrupted() -> bool:
            if report is not None:
                report(self._sequence.length, wanted)
            return interruption()

        if interruption():
            return False
        runtime.prefill(self._sequence, prompt[keep:-1], interrupted)
        if report is not None:
            report(self._sequence.length, wanted)
        return self._sequence.length == wanted
