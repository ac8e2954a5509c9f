"""The loop: draft, verify, accept, commit. Plain decoding is the same loop with an empty draft."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from edgespec.runtimes.base import Runtime, Sequence, Work
from edgespec.runtimes.tree import TokenTree

from .acceptance import Verdict, accept_greedy, accept_sampled
from .controller import Controller
from .drafters.base import NO_DRAFT, Context, Draft, Outcome

_Value = TypeVar("_Value")


class Step(NamedTuple):
    """What one pass of the target gave.

    Attributes:
        tokens: new tokens of the answer, at least one.
        accepted: how many of them, counted from the first, a draft had proposed.
        drafted: how many tokens were proposed.
        outcome: the pass in detail.
    """

    tokens: list[int]
    accepted: int
    drafted: int
    outcome: Outcome


def decode(
    runtime: Runtime,
    sequence: Sequence,
    context: Context,
    controller: Controller,
    *,
    limit: int,
    end_tokens: frozenset[int],
    stop: Callable[[], bool] = lambda: False,
) -> Generator[Step, None, None]:
    """Generate until an end token, `limit` tokens, a full context, or until `stop` says so.

    Before the first step and after each one `sequence` holds all of `context.tokens` but the last, however the loop is
    left: by its end, by an exception, or by closing the generator.
    """
    left = min(limit, runtime.context_length - sequence.length)
    try:
        while left > 0 and not stop():
            choice = controller.choose(context, min(left - 1, runtime.options.draft_tokens))
            started = time.perf_counter()
            draft = choice.drafter.draft(context, choice.budget) if choice.drafter else NO_DRAFT
            tree = draft.tree.rooted(context.tokens[-1])
            drafted = time.perf_counter()
            (scores,) = runtime.forward([Work(sequence, tree)])
            verified = time.perf_counter()

            verdict = _accept(tree, draft, scores.logits, context)
            path, tokens = _until_end(tree, verdict, end_tokens)
            runtime.commit(sequence, path)
            context.tokens.extend(tokens)

            name = choice.drafter.name if choice.drafter else "plain"
            outcome = Outcome(name, choice.group, tree, path, drafted - started, verified - drafted)
            controller.observe(outcome)
            if choice.drafter:
                choice.drafter.observe(outcome)
            left -= len(tokens)
            yield Step(tokens, min(len(verdict.path) - 1, len(tokens)), len(draft.tree), outcome)
            if tokens[-1] in end_tokens:
                return
    finally:
        runtime.truncate(sequence, min(sequence.length, len(context.tokens) - 1))


def _accept(tree: TokenTree, draft: Draft, logits: np.ndarray, context: Context) -> Verdict:
    sampler = context.sampler
    if not sampler.greedy:
        p = _ByNode(lambda node: sampler.distribution(logits[node], _history(context, tree, node)))
        return accept_sampled(tree, p, (None, *draft.q), context.rng)
    if sampler.plain:
        return accept_greedy(tree, logits.argmax(axis=1))
    return accept_greedy(tree, _ByNode(lambda node: sampler.best(logits[node], _history(context, tree, node))))


class _ByNode(Generic[_Value]):
    """Values computed for the nodes that are asked for: after a refusal the rest of the tree doesn't matter."""

    def __init__(self, compute: Callable[[int], _Value]) -> None:
        self._compute = compute

    def __getitem__(self, node: int, /) -> _Value:
        return self._compute(node)


def _history(context: Context, tree: TokenTree, node: int) -> list[int]:
    return context.history([tree.tokens[n] for n in tree.path(node)[1:]])


def _until_end(tree: TokenTree, verdict: Verdict, end_tokens: frozenset[int]) -> tuple[list[int], list[int]]:
    """The path to commit and the new tokens, both cut after the first end token."""
    tokens = [tree.tokens[node] for node in verdict.path[1:]] + [verdict.token]
    count = next((i + 1 for i, token in enumerate(tokens) if token in end_tokens), len(tokens))
    return verdict.path[:count], tokens[:count]
