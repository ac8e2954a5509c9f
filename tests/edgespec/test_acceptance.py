from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.acceptance import accept_greedy, accept_sampled, residual, try_token
from edgespec.runtimes import TokenTree
from edgespec.sampling import SamplingOptions
from scripts.check_distribution import SAMPLING, SMALLEST_P, WRONG, WRONG_SEED, configurations, p_value

from ..runtimes.test_tree import trees

DRAWS = 1500


@pytest.mark.parametrize(
    ("shape", "options", "seed"), [pytest.param(*rest, id=name) for name, *rest in configurations()]
)
def test_what_is_drawn_has_the_targets_distribution(shape: object, options: SamplingOptions, seed: int) -> None:
    assert p_value(shape, options, seed, DRAWS) > SMALLEST_P  # type: ignore[arg-type]


@pytest.mark.parametrize("name", WRONG)
def test_the_statistics_would_notice_a_wrong_rule(name: str) -> None:
    accept, shape = WRONG[name]
    assert p_value(shape, SAMPLING["temperature 1"], WRONG_SEED, 2 * DRAWS, accept) <= SMALLEST_P


def test_a_draft_at_a_temperature_of_its_own_keeps_the_distribution() -> None:
    name, shape, options, seed = next(configurations())
    assert p_value(shape, options, seed, DRAWS, draft_options=SamplingOptions(temperature=2.5)) > SMALLEST_P, name


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    weights = st.lists(st.floats(0, 1), min_size=5, max_size=5).filter(lambda w: sum(w) > 0.1)
    p, q = np.array(draw(weights)), np.array(draw(weights))
    return p / p.sum(), q / q.sum()


@given(pairs())
def test_acceptance_and_residual_add_up_to_p(pair: tuple[np.ndarray, np.ndarray]) -> None:
    """Leviathan et al., appendix A.1: q(x) min(1, p(x)/q(x)) + P(refused) residual(x) = p(x)."""
    p, q = pair
    accepted = np.minimum(p, q)
    refused = 1 - accepted.sum()
    total = accepted + refused * residual(0, p, q)
    np.testing.assert_allclose(total, p, atol=1e-9)


@given(pairs(), st.integers(0, 4))
def test_a_chosen_token_is_refused_into_the_rest_of_p(pair: tuple[np.ndarray, np.ndarray], token: int) -> None:
    p, _ = pair
    rest = residual(token, p, None)
    if p[token] < 1:
        assert rest[token] == 0
        others = np.delete(p, token)
        np.testing.assert_allclose(np.delete(rest, token), others / others.sum(), atol=1e-9)


def test_equal_p_and_q_always_accept() -> None:
    p = np.array([0.1, 0.2, 0.3, 0.4])
    rng = np.random.default_rng(0)
    assert all(try_token(x, p, p.copy(), rng)[0] for x in range(4) for _ in range(500))


def test_a_token_that_the_target_never_says_is_never_accepted() -> None:
    p, q = np.array([0.0, 1.0]), np.array([0.9, 0.1])
    rng = np.random.default_rng(0)
    assert not any(try_token(0, p, q, rng)[0] for _ in range(500))
    assert not any(try_token(0, p, None, rng)[0] for _ in range(500))


@given(trees(), st.data())
def test_greedy_acceptance_is_the_walk_that_plain_decoding_takes(tree: TokenTree, data: st.DataObject) -> None:
    tree = tree.rooted(99)
    best = [data.draw(st.integers(0, 50)) for _ in range(len(tree))]
    path, token = accept_greedy(tree, best)
    assert path == tree.path(path[-1])
    for above, below in pairwise(path):
        assert tree.tokens[below] == best[above]
    assert token == best[path[-1]]
    below = [n for n in range(len(tree)) if tree.parents[n] == path[-1]]
    assert token not in [tree.tokens[n] for n in below]


def test_a_lone_root_gives_a_draw_from_p() -> None:
    p = np.array([0.0, 0.0, 1.0])
    assert accept_sampled(TokenTree.chain([5]), [p], [None], np.random.default_rng(0)) == ([0], 2)
