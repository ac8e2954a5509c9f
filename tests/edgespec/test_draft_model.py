from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.drafters.base import Context, Draft
from edgespec.drafters.draft_model import DraftModel, common_prefix
from edgespec.runtimes import Runtime, RuntimeOptions
from edgespec.runtimes.llamacpp import LlamaCpp
from edgespec.sampling import Sampler, SamplingOptions

from ..runtimes.conformance import full_logits

PROMPT = [100, 200, 300, 400]
ATOL = 2e-2


def context(tokens: list[int], **sampling: Any) -> Context:
    return Context(list(tokens), len(tokens), Sampler(SamplingOptions(**sampling)), np.random.default_rng(5))


@pytest.fixture(scope="module")
def oracle(tiny_draft: Path) -> Runtime:
    """The draft model once more, to work out what a draft should be."""
    return LlamaCpp.load(tiny_draft, RuntimeOptions(ctx=256, threads=1))


def drafter(path: Path, **options: Any) -> DraftModel:
    return DraftModel(LlamaCpp.load(path, RuntimeOptions(ctx=256, threads=1)), 1024, **options)


def greedy(oracle: Runtime, tokens: list[int], count: int) -> list[int]:
    said: list[int] = []
    for _ in range(count):
        said.append(int(full_logits(oracle, tokens + said).argmax()))
    return said


def check_greedy(draft: Draft, oracle: Runtime, tokens: list[int]) -> None:
    assert list(draft.tree.tokens) == greedy(oracle, tokens, len(draft.tree))


def test_a_greedy_chain_is_what_the_draft_model_would_say(tiny_draft: Path, oracle: Runtime) -> None:
    model = drafter(tiny_draft)
    draft = model.draft(context(PROMPT), 4)
    check_greedy(draft, oracle, PROMPT)
    assert draft.q == (None,) * 4
    model.close()


@pytest.mark.parametrize("accepted", [0, 1, 2, 3, 4])
def test_the_cache_stays_in_step_whatever_was_accepted(tiny_draft: Path, oracle: Runtime, accepted: int) -> None:
    model, answer = drafter(tiny_draft), context(PROMPT)
    for next_token in (7, 8, 9):  # the target's own token after what it accepted
        draft = model.draft(answer, 4)
        check_greedy(draft, oracle, answer.tokens)
        answer.tokens += [*draft.tree.tokens[:accepted], next_token]
    model.close()


def test_a_drafter_that_was_left_out_for_a_while_catches_up(tiny_draft: Path, oracle: Runtime) -> None:
    model, answer = drafter(tiny_draft), context(PROMPT)
    model.draft(answer, 3)
    answer.tokens += list(range(500, 540))
    check_greedy(model.draft(answer, 3), oracle, answer.tokens)
    model.close()


def test_another_answer_shares_the_beginning_of_the_one_before(tiny_draft: Path, oracle: Runtime) -> None:
    model = drafter(tiny_draft)
    model.draft(context([*PROMPT, 5, 6, 7]), 3)
    other = context([*PROMPT, 5, 99])
    check_greedy(model.draft(other, 3), oracle, other.tokens)
    model.close()


def test_the_handed_on_q_is_the_distribution_that_was_drawn_from(tiny_draft: Path, oracle: Runtime) -> None:
    options = {"temperature": 0.8, "top_k": 20, "presence_penalty": 1.0}
    model, answer = drafter(tiny_draft), context(PROMPT, **options)
    draft = model.draft(answer, 3)
    sampler = Sampler(SamplingOptions(**options))
    for node in range(3):
        before = [*PROMPT, *draft.tree.tokens[:node]]
        q = draft.q[node]
        assert q is not None
        assert q[draft.tree.tokens[node]] > 0
        np.testing.assert_allclose(q, sampler.distribution(full_logits(oracle, before), before), atol=ATOL)
    model.close()


def test_drawn_chains_have_the_frequencies_of_q(tiny_draft: Path) -> None:
    model, answer = drafter(tiny_draft), context(PROMPT, temperature=1.0, top_k=3)
    drafts = [model.draft(answer, 1) for _ in range(600)]
    q = drafts[0].q[0]
    assert q is not None
    counts = np.bincount([d.tree.tokens[0] for d in drafts], minlength=1024)
    expected = 600 * q
    kept = expected > 0
    assert counts[~kept].sum() == 0
    assert ((counts[kept] - expected[kept]) ** 2 / expected[kept]).sum() < 20  # chi-square, 2 degrees: p of 5e-5
    model.close()


def test_a_greedy_tree_holds_the_likeliest_paths(tiny_draft: Path, oracle: Runtime) -> None:
    model = drafter(tiny_draft, branches=3)
    tree = model.draft(context(PROMPT), 6).tree
    assert len(tree) == 6
    logits = full_logits(oracle, PROMPT).astype(np.float64)
    root = logits - np.logaddexp.reduce(logits)
    first = [t for t, parent in zip(tree.tokens, tree.parents, strict=True) if parent == -1]
    assert first == [int(t) for t in np.argsort(-root)[:3]]
    paths = []
    for token in first:
        below = full_logits(oracle, [*PROMPT, token]).astype(np.float64)
        below -= np.logaddexp.reduce(below)
        paths += [(root[token] + below[t], token, int(t)) for t in np.argsort(-below)[:3]]
    expected = {(a, b) for _, a, b in sorted(paths)[-3:]}
    second = {(tree.tokens[p], t) for t, p in zip(tree.tokens, tree.parents, strict=True) if p != -1}
    assert second == expected
    model.close()


def test_a_drawn_tree_has_different_children_and_one_q(tiny_draft: Path) -> None:
    model = drafter(tiny_draft, branches=3)
    draft = model.draft(context(PROMPT, temperature=1.0), 7)
    roots = [n for n, parent in enumerate(draft.tree.parents) if parent == -1]
    assert len({draft.tree.tokens[n] for n in roots}) == len(roots) == 3
    assert all(draft.q[n] is draft.q[roots[0]] for n in roots)
    assert len(draft.tree) == 7
    model.close()


def test_a_tree_leaves_the_cache_in_step(tiny_draft: Path, oracle: Runtime) -> None:
    model, answer = drafter(tiny_draft, branches=3), context(PROMPT)
    for _ in range(3):
        model.draft(answer, 7)
        answer.tokens.append(42)
    expected = full_logits(oracle, answer.tokens)
    tree = model.draft(answer, 3).tree
    assert list(tree.tokens) == [int(t) for t in np.argsort(-expected)[:3]]
    model.close()


def test_tokens_that_mean_something_else_are_never_drafted(tiny_draft: Path, oracle: Runtime) -> None:
    likeliest = greedy(oracle, PROMPT, 1)[0]
    model = drafter(tiny_draft, excluded=frozenset([likeliest]))
    assert model.draft(context(PROMPT), 1).tree.tokens[0] != likeliest
    q = model.draft(context(PROMPT, temperature=1.0), 1).q[0]
    assert q is not None
    assert q[likeliest] == 0
    model.close()


@pytest.mark.parametrize("size", [900, 1100])
def test_vocabularies_of_other_lengths_are_fitted(tiny_draft: Path, size: int) -> None:
    model = DraftModel(LlamaCpp.load(tiny_draft, RuntimeOptions(ctx=256, threads=1)), size)
    answer = context([*PROMPT, size - 1], temperature=1.0)
    draft = model.draft(answer, 8)
    assert max(draft.tree.tokens) < min(size, 1024)
    assert all(q is not None and q.shape == (size,) for q in draft.q)
    model.close()


def test_a_full_context_of_the_draft_is_no_prospect(tiny_draft: Path) -> None:
    model = drafter(tiny_draft)
    assert model.prospect(context([1] * 256)) is None
    nearly = model.prospect(context([1] * 253))
    assert nearly is not None
    assert nearly.limit == 3
    model.draft(context([1] * 253), 3)
    model.close()


def test_common_prefix_stops_at_the_first_difference() -> None:
    assert common_prefix([1, 2, 3], [1, 2, 4, 5]) == 2
    assert common_prefix([], [1]) == 0
    assert common_prefix([1, 2], [1, 2, 3], start=9) == 2
