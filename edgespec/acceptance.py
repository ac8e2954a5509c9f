"""Which drafted tokens are accepted: pure functions of arrays. p is the target's distribution, q the drafter's.

None of the rules changes what the target says: the tokens that come out are the target's greedy choice, or have
exactly the target's distribution, whatever the draft was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from edgespec.runtimes.tree import TokenTree

from .sampling import draw


class Verdict(NamedTuple):
    """The accepted path through a tree, its root first, and the token that follows it."""

    path: list[int]
    token: int


class Rows(Protocol):
    """Distributions by node, float64 (vocabulary,) each; an array (nodes, vocabulary) is one."""

    def __getitem__(self, node: int, /) -> np.ndarray: ...


class Choices(Protocol):
    """Tokens by node."""

    def __getitem__(self, node: int, /) -> int: ...


def accept_greedy(tree: TokenTree, best: Choices) -> Verdict:
    """Follow the children that are the target's own choice.

    Args:
        tree: with one root, the token before the draft.
        best: the target's most likely token after each node.
    """
    children, path = tree.children(), [0]
    while True:
        token = int(best[path[-1]])
        match = next((child for child in children[path[-1]] if tree.tokens[child] == token), None)
        if match is None:
            return Verdict(path, token)
        path.append(match)


def accept_sampled(
    tree: TokenTree, p: Rows, q: Sequence[np.ndarray | None], rng: np.random.Generator, *, replacement: bool = False
) -> Verdict:
    """Speculative sampling on a tree; on a chain it is algorithm 1 of Leviathan et al. (2211.17192).

    A child x is accepted with min(1, p(x) / q(x)). After a refusal p becomes the residual normalise(max(0, p - q)) and
    the next child is tried; where the children were drawn without replacement, q first loses x (recursive rejection
    sampling, 2402.14160). After the last refusal the token is drawn from what is left of p.

    Args:
        tree: with one root, the token before the draft; children stand in the order in which they were drawn.
        p: the target's distribution after each node.
        q: for each node the distribution that its token was drawn from, float64 (vocabulary,): the full one, the same
            for all children of a node. None: the token was not drawn but chosen, which counts as a one-hot q.
        replacement: whether children of one node were drawn independently of each other.
    """
    children, path = tree.children(), [0]
    while True:
        left, accepted = p[path[-1]], None
        tried: list[int] = []
        for child in children[path[-1]]:
            token = tree.tokens[child]
            proposal = _without(q[child], [] if replacement else tried)
            accepted_now, left = try_token(token, left, proposal, rng)
            if accepted_now:
                accepted = child
                break
            tried.append(token)
        if accepted is None:
            return Verdict(path, draw(left, rng))
        path.append(accepted)


def try_token(token: int, p: np.ndarray, q: np.ndarray | None, rng: np.random.Generator) -> tuple[bool, np.ndarray]:
    """Accept `token` with min(1, p / q); returns whether, and the p that the next try or draw works with.

    Leviathan et al., section 2.3. A q of None stands for one-hot at `token`.
    """
    likelihood = 1.0 if q is None else float(q[token])
    if rng.random() * likelihood < p[token]:
        return True, p
    return False, residual(token, p, q)


def residual(token: int, p: np.ndarray, q: np.ndarray | None) -> np.ndarray:
    """normalise(max(0, p - q)), the distribution after the refusal of `token`."""
    if q is None:
        rest = p.copy()
        rest[token] = 0.0
    else:
        rest = np.maximum(p - q, 0.0)
    total = rest.sum()
    # p and q equal up to rounding: a refusal has then a probability of rounding size, and p itself is right
    return np.asarray(rest / total) if total > 0 else p


def _without(q: np.ndarray | None, tokens: list[int]) -> np.ndarray | None:
    if q is None or not tokens:
        return q
    rest = q.copy()
    rest[tokens] = 0.0
    return np.asarray(rest / rest.sum())
