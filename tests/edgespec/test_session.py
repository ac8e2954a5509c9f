from __future__ import annotations

import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

from edgespec.controller import Controller
from edgespec.draft_length import FixedLength
from edgespec.drafters.base import Draft
from edgespec.events import Answer
from edgespec.model import collect
from edgespec.models.errors import ContextFull, RuntimeFailure, UsageError
from edgespec.options import GenerationOptions
from edgespec.session import Session

from .scripted import END, SIZE, ScriptedDrafter, ScriptedRuntime, says

PROMPT = [10, 11, 12]
ANSWER = [20, 21, 22, 23, 24, 25, 26, 27]
TEXT = "".join(chr(t + 63) for t in ANSWER)  # "STUVWXYZ"


class Harness:
    def __init__(self, answer: list[int] = ANSWER, guess: list[int] | None = None, **runtime: Any) -> None:
        self.runtime = ScriptedRuntime(says(answer, PROMPT), **runtime)
        drafters = [] if guess is None else [ScriptedDrafter(self._propose)]
        self.guess = guess or []
        self.session = Session(self.runtime, Controller(drafters, FixedLength(3), None), "scripted")

    def _propose(self, tokens: list[int], budget: int) -> Draft:
        start = len(tokens) - len(PROMPT)
        return Draft.chosen(self.guess[start : start + budget])

    def answer(self, prompt: list[int] = PROMPT, **options: Any) -> Answer:
        return collect(self.session.generate(prompt, GenerationOptions.of(**options)))

    def check_cache(self) -> None:
        sequence = self.session._sequence
        assert sequence.tokens == self.session._tokens[: sequence.length]


def test_an_answer_has_text_tokens_reason_and_statistics() -> None:
    answer = Harness(guess=ANSWER).answer()
    assert answer.text == TEXT
    assert answer.tokens == (*ANSWER, END)
    assert answer.finish_reason == "stop"
    stats = answer.stats
    assert (stats.prompt_tokens, stats.completion_tokens, stats.target_passes) == (3, 9, 3)
    assert (stats.drafted_tokens, stats.accepted_tokens) == (6, 6)
    assert stats.tokens_per_pass == 3
    assert stats.tokens_per_second > 0
    assert stats.time_to_first_token_s > 0


def test_events_know_which_tokens_a_draft_proposed() -> None:
    harness = Harness(guess=[20, 21, 50, 23, 24, 25, 26, 27])
    drafted = {e.text: e.drafted for e in harness.session.generate(PROMPT, GenerationOptions()) if e.text}
    assert drafted == {"S": True, "T": True, "U": False, "V": True, "W": True, "X": True, "Y": False, "Z": True}


@pytest.mark.parametrize("stop", ["VW", "V", "UVWXY", "Z"])
def test_a_stop_string_across_drafts_ends_the_answer_before_it(stop: str) -> None:
    harness = Harness(guess=ANSWER)
    answer = harness.answer(stop=[stop])
    assert answer.text == TEXT[: TEXT.index(stop)]
    assert answer.finish_reason == "stop"
    end = TEXT.index(stop) + len(stop)
    assert answer.tokens == tuple(ANSWER[:end])
    assert answer.stats.completion_tokens == end
    assert harness.session._tokens == PROMPT + ANSWER[:end]
    harness.check_cache()


def test_zero_tokens_is_an_empty_answer_without_a_pass() -> None:
    harness = Harness()
    answer = harness.answer(max_tokens=0)
    assert (answer.text, answer.tokens, answer.finish_reason) == ("", (), "length")
    assert harness.runtime.passes == []


def test_the_token_limit_is_the_reason_of_the_end() -> None:
    answer = Harness(guess=ANSWER).answer(max_tokens=5)
    assert (answer.text, answer.finish_reason) == (TEXT[:5], "length")


def test_a_prompt_that_fills_the_context_still_gives_one_token() -> None:
    answer = Harness(ctx=3).answer()
    assert (answer.tokens, answer.finish_reason) == ((20,), "length")


def test_a_prompt_longer_than_the_context_is_an_error() -> None:
    with pytest.raises(ContextFull, match="3 tokens and the context holds 2"):
        Harness(ctx=2).answer()


def test_an_empty_prompt_is_an_error() -> None:
    with pytest.raises(UsageError, match="empty"):
        Harness().answer([])


def test_a_token_outside_the_vocabulary_is_an_error() -> None:
    with pytest.raises(UsageError, match="vocabulary of 64"):
        Harness().answer([1, SIZE])
    with pytest.raises(UsageError, match="logit_bias"):
        Harness().answer(logit_bias={SIZE: 1.0})


def test_cancelling_from_another_thread_ends_the_answer() -> None:
    harness, cancel = Harness(), threading.Event()
    events = harness.session.generate(PROMPT, GenerationOptions(cancel=cancel))
    assert next(events).text == "S"
    threading.Thread(target=cancel.set).start()
    cancel.wait()
    rest = list(events)
    assert rest[-1].finish_reason == "cancelled"
    harness.check_cache()
    assert harness.answer().text == TEXT


def test_a_deadline_in_the_past_ends_the_answer_before_it_begins() -> None:
    harness = Harness()
    answer = harness.answer(deadline_s=0)
    assert (answer.text, answer.finish_reason) == ("", "deadline")
    harness.check_cache()


def test_a_deadline_ends_a_long_answer() -> None:
    harness = Harness([20] * 10_000, ctx=20_000)
    started = time.perf_counter()
    answer = harness.answer(deadline_s=0.2)
    assert answer.finish_reason == "deadline"
    assert 0 < len(answer.tokens) < 10_000
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize("fail_at", [0, 1])
def test_an_interrupt_leaves_a_session_that_answers_rightly(fail_at: int) -> None:
    harness = Harness(guess=ANSWER, fail_at=fail_at)
    with pytest.raises(KeyboardInterrupt):
        harness.answer()
    harness.check_cache()
    assert harness.answer().text == TEXT


def test_an_answer_that_is_left_unfinished_does_not_block_the_next() -> None:
    harness = Harness(guess=ANSWER)
    events = harness.session.generate(PROMPT, GenerationOptions())
    next(events)
    with pytest.raises(UsageError, match="another answer"):
        harness.answer()
    events.close()
    assert harness.answer().text == TEXT


def test_what_prompts_share_is_prefilled_once() -> None:
    harness = Harness()
    harness.answer()
    said = [*PROMPT, *ANSWER, END]
    reports: list[tuple[int, int]] = []
    answer = harness.answer([*said, 30, 31], on_prefill=lambda done, total: reports.append((done, total)))
    # the end token was said but never fed: it is prefilled with what follows it
    assert answer.stats.cached_tokens == len(said) - 1
    assert reports[0] == (len(said) - 1, len(said) + 1)
    assert reports[-1] == (len(said) + 1, len(said) + 1)


def test_a_model_that_cannot_rewind_begins_afresh() -> None:
    harness = Harness()
    harness.answer()
    harness.runtime.can_rewind = False
    answer = harness.answer(PROMPT)
    assert answer.stats.cached_tokens == 0
    assert answer.text == TEXT


def test_the_same_seed_draws_the_same_answer() -> None:
    harness = Harness()
    harness.runtime._script = lambda tokens: np.zeros(SIZE, np.float32)
    answers = [harness.answer(temperature=1.0, seed=seed, max_tokens=20).tokens for seed in (1, 1, 2)]
    assert answers[0] == answers[1] != answers[2]


def test_half_a_character_at_the_end_becomes_a_replacement() -> None:
    harness = Harness()
    harness.runtime.vocabulary.piece = lambda token, special=False: b"" if token == END else b"\xf0\x9f"  # type: ignore
    assert harness.answer(max_tokens=1).text == "�"


# ---- closing, and answers that end badly


def test_a_closed_session_says_so_even_where_nothing_is_to_do() -> None:
    harness = Harness()
    harness.session.close()
    with pytest.raises(RuntimeFailure, match="closed"):
        harness.answer(max_tokens=0)


def test_closing_ends_an_answer_that_was_left_unfinished() -> None:
    harness = Harness(guess=ANSWER)
    events = harness.session.generate(PROMPT, GenerationOptions())
    assert next(events).text == "S"
    harness.session.close()
    with pytest.raises(RuntimeFailure, match="closed"):
        for _ in events:
            pass
    events.close()


def test_closing_from_another_thread_waits_for_the_step_and_ends_the_answer() -> None:
    harness = Harness([20] * 100_000, ctx=200_000)
    inside, closed_during_a_step = threading.Event(), []
    forward = harness.runtime.forward

    def slow(work: Any) -> Any:
        inside.set()
        time.sleep(0.01)
        closed_during_a_step.append(harness.runtime.closed)
        return forward(work)

    harness.runtime.forward = slow  # type: ignore[method-assign]

    def close() -> None:
        inside.wait()
        harness.session.close()
        harness.runtime.closed = True

    thread = threading.Thread(target=close)
    thread.start()
    with pytest.raises(RuntimeFailure, match="closed"):
        harness.answer()
    thread.join(5)
    assert not any(closed_during_a_step)


class InterruptingLock:
    """A lock that an interrupt hits when it is taken for the n-th time: that is where Python looks for one."""

    def __init__(self, at: int) -> None:
        self._lock, self._left = threading.RLock(), at

    def __enter__(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt
        self._lock.__enter__()

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__(None, None, None)


@pytest.mark.parametrize("at", range(1, len(ANSWER) + 2))
def test_an_interrupt_anywhere_does_not_leave_the_session_busy(at: int) -> None:
    harness = Harness()
    harness.session._lock = InterruptingLock(at)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        harness.answer()
    assert harness.answer().text == TEXT


def test_collecting_closes_the_answer_that_it_was_given() -> None:
    harness = Harness(fail_at=2)
    events = harness.session.generate(PROMPT, GenerationOptions())
    with pytest.raises(KeyboardInterrupt) as caught:
        collect(events)
    assert caught.tb is not None  # which holds the frames, and so the generator
    assert harness.answer().text == TEXT


@pytest.mark.parametrize("prompt", [[1.5], ["a"], [None], [True]])
def test_prompt_tokens_must_be_whole_numbers(prompt: Any) -> None:
    with pytest.raises(UsageError, match="token of the prompt"):
        Harness().answer(prompt)


def test_prompt_tokens_may_be_numpys() -> None:
    assert Harness().answer(list(np.array(PROMPT))).text == TEXT


def test_an_interrupt_of_the_clean_up_does_not_leave_the_session_busy_either() -> None:
    harness = Harness()
    harness.session._lock = InterruptingLock(len(ANSWER) + 3)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        harness.answer()
    harness.session._answer = weakref.ref(dead := type("Dead", (), {})())  # as if the line after it had been hit too
    del dead
    assert harness.answer().text == TEXT
    harness.check_cache()
