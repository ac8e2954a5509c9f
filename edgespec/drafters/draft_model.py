"""A smaller model of the same vocabulary drafts: a chain, or a tree of its likeliest continuations."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from edgespec.runtimes.base import Runtime, Work
from edgespec.runtimes.tree import NO_PARENT, TokenTree

from ..costs import CostCurve
from ..sampling import draw
from .base import NO_DRAFT, Context, Draft, Outcome, Prospect

MAX_LENGTH = 16
"""Most nodes of a draft; a tree never has more leaves."""
_PRIOR = 0.7


class DraftModel:
    """Implements `Drafter`.

    Under greedy decoding tokens are chosen (the draft's likeliest), otherwise drawn from the draft's distribution after
    the same sampling options, and that distribution is handed on as q.

    Args:
        runtime: the draft model. Owned: closed with the drafter.
        vocabulary_size: of the target.
        excluded: tokens that mean something else to the target; never drafted, so their q is 0 and exactness holds.
        curve: t(n) of the draft model, by which it says what catching up costs.
        branches: paths that the draft tree follows at once; 1 drafts a chain. Greedy trees keep the likeliest paths;
            drawn trees branch at the root alone, without replacement, since dropping what was drawn would bias.
    """

    name = "draft"

    def __init__(
        self,
        runtime: Runtime,
        vocabulary_size: int,
        excluded: frozenset[int] = frozenset(),
        curve: CostCurve | None = None,
        branches: int = 1,
    ) -> None:
        self._runtime, self._size, self._curve, self._branches = runtime, vocabulary_size, curve, branches
        self._excluded = np.array(sorted(t for t in excluded if t < vocabulary_size), np.int64)
        self._sequence = runtime.open()
        self._cached: list[int] = []
        self._context: Context | None = None
        self._agreed = 0

    def prospect(self, context: Context) -> Prospect | None:
        room = self._runtime.context_length - len(context.tokens)
        limit = min(room, self._runtime.options.draft_tokens, MAX_LENGTH)
        return Prospect(0, limit, _PRIOR, self._setup_seconds(context)) if limit > 0 else None

    def _setup_seconds(self, context: Context) -> float:
        """What reading the tokens beyond the two of an ordinary step takes."""
        behind = len(context.tokens) - (self._agreed if self._context is context else 0) - MAX_LENGTH
        return max(0, behind) * self._curve(MAX_LENGTH) / MAX_LENGTH if self._curve else 0.0

    def draft(self, context: Context, budget: int) -> Draft:
        if budget < 1:
            return NO_DRAFT
        growth = _Growth(context, self._catch_up(context))
        if self._branches > 1:
            self._grow_tree(growth, budget)
        else:
            self._grow_chain(growth, budget)
        return growth.draft()

    def observe(self, outcome: Outcome) -> None:
        """Nothing to do: `_catch_up` compares the cache with the context before each draft."""

    def close(self) -> None:
        self._runtime.close()

    def _catch_up(self, context: Context) -> np.ndarray:
        """Bring the cache to exactly the context's tokens; returns the logits after the last of them."""
        tokens = self._known(context.tokens)
        start = self._agreed if self._context is context else 0
        keep = common_prefix(self._cached, tokens[:-1], start)
        del self._cached[keep:]  # before the cells: interrupted in between, `_cached` must not claim more than there is
        self._runtime.truncate(self._sequence, keep)
        fresh = tokens[keep:]
        self._cached += fresh[: self._runtime.prefill(self._sequence, fresh[:-1])] if len(fresh) > 8 else []
        logits = self._feed(tokens[len(self._cached) :])
        self._context, self._agreed = context, len(tokens) - 1
        return logits

    def _known(self, tokens: list[int]) -> list[int]:
        """The same tokens, token 0 standing for those that the draft has no id for (it only drafts worse there)."""
        size = self._runtime.vocabulary.size
        return tokens if size >= self._size else [t if t < size else 0 for t in tokens]

    def _feed(self, tokens: list[int]) -> np.ndarray:
        """Append tokens to the cache; returns the logits after the last."""
        last = len(tokens) - 1
        (scores,) = self._runtime.forward([Work(self._sequence, TokenTree.chain(tokens), rows=(last,))])
        self._runtime.commit(self._sequence, list(range(len(tokens))))
        self._cached += tokens
        return self._fitted(scores.logits[0])

    def _fitted(self, logits: np.ndarray) -> np.ndarray:
        """Logits over the target's vocabulary; what the target doesn't know, or knows otherwise, is ruled out."""
        if len(logits) == self._size and not len(self._excluded):
            return logits
        fitted = np.full(self._size, -np.inf, np.float32)
        shared = min(self._size, len(logits))
        fitted[:shared] = logits[:shared]
        fitted[self._excluded] = -np.inf
        return fitted

    def _grow_chain(self, growth: _Growth, budget: int) -> None:
        node = NO_PARENT
        for step in range(budget):
            (node,) = growth.extend(node, 1)
            if step + 1 < budget:
                growth.logits[node] = self._feed([growth.tokens[node]])

    def _grow_tree(self, growth: _Growth, budget: int) -> None:
        frontier = growth.widen([NO_PARENT], min(self._branches, budget))
        while len(growth.tokens) < budget:
            tree = TokenTree(tuple(growth.tokens), tuple(growth.parents))
            (scores,) = self._runtime.forward([Work(self._sequence, tree)])
            for node, row in zip(frontier, scores.logits, strict=True):
                growth.logits[node] = self._fitted(row).copy()
            frontier = growth.widen(frontier, min(self._branches, budget - len(growth.tokens)))
        self._runtime.truncate(self._sequence, len(self._cached))


@dataclass(slots=True)
class _Growth:
    """A draft in the making."""

    context: Context
    root_logits: np.ndarray
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    q: list[np.ndarray | None] = field(default_factory=list)
    logits: dict[int, np.ndarray] = field(default_factory=dict)
    confidence: dict[int, float] = field(default_factory=lambda: {NO_PARENT: 0.0})
    """Log probability of the path down to each node."""

    def draft(self) -> Draft:
        return Draft(TokenTree(tuple(self.tokens), tuple(self.parents)), tuple(self.q))

    def widen(self, frontier: list[int], count: int) -> list[int]:
        """Add up to `count` nodes under the frontier and return them."""
        if self.context.sampler.greedy:
            return self._add_likeliest(frontier, count)
        if frontier == [NO_PARENT]:
            return self.extend(NO_PARENT, count)
        return [node for parent in frontier[:count] for node in self.extend(parent, 1)]

    def extend(self, parent: int, count: int) -> list[int]:
        """Children of `parent`: its likeliest token under greedy decoding, else up to `count` different draws."""
        history = self._history(parent)
        if self.context.sampler.greedy:
            return [self._add(parent, self.context.sampler.best(self._logits(parent), history), None)]
        q = self.context.sampler.distribution(self._logits(parent), history)
        left, nodes = q.copy(), []
        for _ in range(min(count, int(np.count_nonzero(q)))):
            token = draw(left, self.context.rng)
            left[token] = 0.0
            nodes.append(self._add(parent, token, q))
        return nodes

    def _add_likeliest(self, frontier: list[int], count: int) -> list[int]:
        """The `count` continuations of the frontier whose paths are likeliest (EAGLE-2's growth, 2406.16858)."""
        candidates: list[tuple[float, int, int]] = []
        for parent in frontier:
            logits = self.context.sampler.adjusted(self._logits(parent), self._history(parent))
            likeliest = np.argpartition(logits, -count)[-count:]
            total = float(np.logaddexp.reduce(logits))
            candidates += [(self.confidence[parent] + float(logits[t]) - total, parent, int(t)) for t in likeliest]
        nodes = []
        # parents in order, so that the runtime's rows come in the order of the frontier
        for confidence, parent, token in sorted(heapq.nlargest(count, candidates), key=lambda c: (c[1], -c[0])):
            node = self._add(parent, token, None)
            self.confidence[node] = confidence
            nodes.append(node)
        return nodes

    def _add(self, parent: int, token: int, q: np.ndarray | None) -> int:
        self.tokens.append(token)
        self.parents.append(parent)
        self.q.append(q)
        return len(self.tokens) - 1

    def _logits(self, parent: int) -> np.ndarray:
        return self.root_logits if parent == NO_PARENT else self.logits[parent]

    def _history(self, parent: int) -> list[int]:
        path = []
        while parent != NO_PARENT:
            path.append(self.tokens[parent])
            parent = self.parents[parent]
        return self.context.history(path[::-1])


def common_prefix(a: list[int], b: list[int], start: int = 0) -> int:
    """Length of the longest common beginning; the first `start` tokens are known to agree."""
    end = min(len(a), len(b))
    start = min(start, end)
    return next((i for i in range(start, end) if a[i] != b[i]), end)
