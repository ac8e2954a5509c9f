from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.controller import Controller
from edgespec.draft_length import FixedLength
from edgespec.drafters.base import NO_DRAFT, Context, Draft
from edgespec.engine import Step, decode
from edgespec.runtimes import TokenTree
from edgespec.sampling import Sampler, SamplingOptions

from .scripted import END, ScriptedDrafter, ScriptedRuntime, says

PROMPT = [10, 11, 12]
ANSWER = [20, 21, 22, 23, 24, 25, 26, 27]


def knows(answer: list[int]) -> Callable[[list[int], int], Draft]:
    """A drafter's proposals: the answer as it expects it."""

    def propose(tokens: list[int], budget: int) -> Draft:
        start = len(tokens) - len(PROMPT)
        return Draft.chosen(answer[start : start + budget])

    return propose


class Run:
    """One run of the loop on a scripted runtime."""

    def __init__(
        self, answer: list[int], propose: Callable[[list[int], int], Draft] | None = None, length: int = 3,
        limit: int = 100, ctx: int = 256, fail_at: int | None = None, **sampling: Any,
    ) -> None:  # fmt: skip
        self.runtime = ScriptedRuntime(says(answer, PROMPT), ctx, fail_at)
        self.sequence = self.runtime.open()
        self.runtime.prefill(self.sequence, PROMPT[:-1])
        self.context = Context(list(PROMPT), len(PROMPT), Sampler(SamplingOptions(**sampling)))
        self.drafter = ScriptedDrafter(propose) if propose else None
        controller = Controller([self.drafter] if self.drafter else [], FixedLength(length), None)
        self.steps = decode(
            self.runtime, self.sequence, self.context, controller, limit=limit, end_tokens=frozenset([END])
        )

    def all(self) -> list[Step]:
        return list(self.steps)

    def said(self) -> list[int]:
        return self.context.tokens[len(PROMPT) :]

    def check_cache(self) -> None:
        assert self.sequence.tokens == self.context.tokens[:-1]
        assert self.sequence.tree is None


def test_plain_decoding_gives_one_token_a_pass() -> None:
    run = Run(ANSWER)
    assert [s.tokens for s in run.all()] == [[t] for t in [*ANSWER, END]]
    assert run.runtime.passes == [1] * 9
    run.check_cache()


def test_a_right_draft_is_accepted_whole_with_one_token_more() -> None:
    run = Run(ANSWER, knows(ANSWER))
    steps = run.all()
    assert [len(s.tokens) for s in steps] == [4, 4, 1]
    assert [s.accepted for s in steps] == [3, 3, 0]
    assert run.said() == [*ANSWER, END]
    run.check_cache()


def test_a_wrong_draft_costs_nothing_but_the_pass() -> None:
    run = Run(ANSWER, knows([20, 21, 50, 51, 52, 53, 54, 55]))
    steps = run.all()
    assert steps[0].tokens == [20, 21, 22]
    assert steps[0].accepted == 2
    assert run.said() == [*ANSWER, END]
    run.check_cache()


def test_the_branch_that_the_target_takes_is_committed() -> None:
    def propose(tokens: list[int], budget: int) -> Draft:
        i = len(tokens) - len(PROMPT)
        right = [*ANSWER, END, END, END][i : i + 2]
        # a wrong branch first, the right one second, with wrong and right leaves below it
        return Draft(TokenTree((60, right[0], 61, 62, right[1]), (-1, -1, 0, 1, 1)), (None,) * 5)

    run = Run(ANSWER, propose)
    assert [s.tokens for s in run.all()] == [ANSWER[:3], ANSWER[3:6], [*ANSWER[6:], END]]
    run.check_cache()


def test_an_end_token_inside_a_draft_ends_the_answer_there() -> None:
    run = Run([20, 21], knows([20, 21, END, 30, 31]), length=5)
    assert [s.tokens for s in run.all()] == [[20, 21, END]]
    run.check_cache()


def test_the_limit_holds_across_drafts() -> None:
    for limit in range(10):
        run = Run(ANSWER, knows(ANSWER), limit=limit)
        run.all()
        assert run.said() == [*ANSWER, END][:limit]
        run.check_cache()


def test_a_full_context_ends_the_answer() -> None:
    for drafting in (None, knows(ANSWER)):
        run = Run(ANSWER, drafting, ctx=7)
        run.all()
        assert run.said() == ANSWER[:5]
        run.check_cache()


def test_closing_the_generator_leaves_the_cache_consistent() -> None:
    run = Run(ANSWER, knows(ANSWER))
    next(run.steps)
    run.steps.close()
    assert run.said() == ANSWER[:4]
    run.check_cache()


@pytest.mark.parametrize("fail_at", [0, 1, 2])
def test_an_interrupt_in_a_pass_leaves_the_cache_consistent(fail_at: int) -> None:
    run = Run(ANSWER, knows(ANSWER), fail_at=fail_at)
    with pytest.raises(KeyboardInterrupt):
        run.all()
    assert run.said() == [*ANSWER, END][: 4 * fail_at]
    run.check_cache()


def test_an_exception_in_a_drafter_leaves_the_cache_consistent() -> None:
    def propose(tokens: list[int], budget: int) -> Draft:
        if len(tokens) > 5:
            raise ZeroDivisionError
        return knows(ANSWER)(tokens, budget)

    run = Run(ANSWER, propose)
    with pytest.raises(ZeroDivisionError):
        run.all()
    run.check_cache()


def test_an_empty_draft_is_a_plain_pass() -> None:
    run = Run(ANSWER, lambda tokens, budget: NO_DRAFT)
    run.all()
    assert run.said() == [*ANSWER, END]


def test_drafters_hear_what_became_of_their_drafts() -> None:
    run = Run(ANSWER, knows([20, 21, 50, 23, 24, 25, 26, 27]))
    run.all()
    assert run.drafter is not None
    assert [(o.drafted, o.accepted) for o in run.drafter.outcomes] == [(3, 2), (3, 3), (1, 1)]


def test_penalties_see_the_draft_tokens_before_them() -> None:
    """The script always wants 20; with a penalty on what was said, greedy decoding must move on to 21 and so on."""

    def script(tokens: list[int]) -> Any:
        import numpy as np

        row = np.zeros(64, np.float32)
        row[20:30] = np.linspace(10, 9, 10)
        return row

    answers = []
    for propose in (None, knows([20, 21, 22, 23, 24, 25, 26, 27]), knows([20] * 8), knows([20, 21, 21, 21, 21])):
        run = Run(ANSWER, propose, limit=6, presence_penalty=5.0)
        run.runtime._script = script
        run.all()
        answers.append(run.said())
        run.check_cache()
    assert answers == [[20, 21, 22, 23, 24, 25]] * 4


@given(st.lists(st.integers(1, 5), max_size=12), st.lists(st.integers(1, 5), max_size=12), st.integers(1, 5), st.data())
def test_no_draft_changes_a_greedy_answer(
    answer: list[int], guess: list[int], length: int, data: st.DataObject
) -> None:
    def propose(tokens: list[int], budget: int) -> Draft:
        size = data.draw(st.integers(0, budget))
        parents = tuple(data.draw(st.integers(-1, node - 1)) for node in range(size))
        return Draft(TokenTree(tuple(data.draw(st.integers(0, 5)) for _ in parents), parents), (None,) * size)

    run = Run(answer, propose, length=length)
    run.all()
    assert run.said() == [*answer, END]
    run.check_cache()
