"""Does speculation change what is drawn? Chi-square of the acceptance rules on small vocabularies.

Each configuration has a target and a drafter that know nothing of each other (random logits after each history), one
shape of draft and one set of sampling options. The first two tokens that come out are counted over many draws and held
against p(first) p(second | first), worked out directly. Rules that are wrong on purpose must fail.

    python -m scripts.check_distribution [--draws 100000]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import click
import numpy as np
from scipy import stats

from edgespec.acceptance import Verdict, accept_sampled
from edgespec.runtimes.tree import TokenTree
from edgespec.sampling import Sampler, SamplingOptions, draw

VOCABULARY = 6
PROMPT = [1, 3, 1]
SMALLEST_P = 0.001

SAMPLING = {
    "temperature 1": SamplingOptions(temperature=1.0),
    "temperature 0.6": SamplingOptions(temperature=0.6),
    "temperature 1.5, top-p 0.8": SamplingOptions(temperature=1.5, top_p=0.8),
    "top-k 3": SamplingOptions(temperature=1.0, top_k=3),
    "min-p 0.2, typical-p 0.9": SamplingOptions(temperature=1.0, min_p=0.2, typical_p=0.9),
    "penalties": SamplingOptions(
        temperature=0.8, repetition_penalty=1.4, presence_penalty=0.5, frequency_penalty=0.3, top_p=0.95
    ),
}


class Shape(NamedTuple):
    """Children of each node by depth, and how they come to be."""

    widths: tuple[int, ...]
    drawn: bool = True
    replacement: bool = False


SHAPES = {
    "chain of 1": Shape((1,)),
    "chain of 3": Shape((1, 1, 1)),
    "chosen chain": Shape((1, 1), drawn=False),
    "tree of 3, without replacement": Shape((3,)),
    "tree of 2 x 2, without replacement": Shape((2, 2)),
    "tree of 3, with replacement": Shape((3,), replacement=True),
    "tree of 2 x 2, with replacement": Shape((2, 2), replacement=True),
    "chosen tree of 3 x 2": Shape((3, 2), drawn=False),
}


class Language:
    """Random logits after each history, and the distribution that sampling options make of them."""

    def __init__(self, seed: int, options: SamplingOptions) -> None:
        self._seed, self._sampler = seed, Sampler(options)
        self._known: dict[tuple[int, ...], np.ndarray] = {}

    def __call__(self, path: tuple[int, ...]) -> np.ndarray:
        known = self._known.get(path)
        if known is None:
            rng = np.random.default_rng([self._seed, *path])
            logits = rng.standard_normal(VOCABULARY) * 1.2
            known = self._known[path] = self._sampler.distribution(logits, [*PROMPT, *path])
        return known


Accept = Callable[..., Verdict]
Draft = tuple[TokenTree, list[np.ndarray | None]]


def propose(shape: Shape, q: Language, rng: np.random.Generator) -> Draft:
    """A rooted draft tree of a shape, and each node's q."""
    tokens, parents, proposals = [PROMPT[-1]], [-1], [None]  # type: list[int], list[int], list[np.ndarray | None]
    level: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    for width in shape.widths:
        below = []
        for node, path in level:
            for token in children(shape, width, q(path), rng):
                tokens.append(token)
                parents.append(node)
                proposals.append(q(path) if shape.drawn else None)
                below.append((len(tokens) - 1, (*path, token)))
        level = below
    return TokenTree(tuple(tokens), tuple(parents)), proposals


def children(shape: Shape, width: int, q: np.ndarray, rng: np.random.Generator) -> Iterator[int]:
    if not shape.drawn:
        yield from (int(token) for token in np.argsort(-q)[:width])
        return
    left = q.copy()
    for _ in range(width if shape.replacement else min(width, int(np.count_nonzero(q)))):
        token = draw(left, rng)
        if not shape.replacement:
            left[token] = 0.0
        yield token


def two_tokens(shape: Shape, p: Language, q: Language, rng: np.random.Generator, accept: Accept) -> tuple[int, int]:
    """The first two tokens that speculation gives."""
    tree, proposals = propose(shape, q, rng)
    paths = [tuple(tree.tokens[n] for n in tree.path(node)[1:]) for node in range(len(tree))]
    verdict = accept(tree, [p(path) for path in paths], proposals, rng, replacement=shape.replacement)
    tokens = [*(tree.tokens[node] for node in verdict.path[1:]), verdict.token]
    # a pass that gave one token is followed by another one, whose first token has p's own distribution
    return (tokens[0], tokens[1]) if len(tokens) > 1 else (tokens[0], draw(p((tokens[0],)), rng))


def expected_frequencies(p: Language) -> np.ndarray:
    first = p(())
    return np.concatenate([first[a] * p((a,)) if first[a] > 0 else np.zeros(VOCABULARY) for a in range(VOCABULARY)])


def p_value(shape: Shape, options: SamplingOptions, seed: int, draws: int, accept: Accept = accept_sampled,
            draft_options: SamplingOptions | None = None) -> float:  # fmt: skip
    """Chi-square's p of the observed pairs; 0 where one was drawn that can't be."""
    p, q = Language(2 * seed, options), Language(2 * seed + 1, draft_options or options)
    rng = np.random.default_rng(seed)
    counts = np.zeros(VOCABULARY**2)
    for _ in range(draws):
        a, b = two_tokens(shape, p, q, rng, accept)
        counts[a * VOCABULARY + b] += 1
    expected = expected_frequencies(p) * draws
    if counts[expected == 0].any():
        return 0.0
    counts, expected = counts[expected > 0], expected[expected > 0]
    rare = expected < 5  # the test's usual condition; rare pairs are counted together
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    return float(stats.chisquare(counts, expected).pvalue)


def configurations() -> Iterator[tuple[str, Shape, SamplingOptions, int]]:
    for seed, ((shape_name, shape), (name, options)) in enumerate(itertools.product(SHAPES.items(), SAMPLING.items())):
        yield f"{shape_name}; {name}", shape, options, seed


def keeps_p_after_refusal(
    tree: TokenTree, p: list[np.ndarray], q: list[np.ndarray | None], rng: np.random.Generator, *, replacement: bool
) -> Verdict:
    """Wrong: draws from p instead of the residual."""
    verdict = accept_sampled(tree, p, q, rng, replacement=replacement)
    refused = len(verdict.path) <= max(tree.depths())
    return Verdict(verdict.path, draw(p[verdict.path[-1]], rng)) if refused else verdict


def takes_every_draft(
    tree: TokenTree, p: list[np.ndarray], q: list[np.ndarray | None], rng: np.random.Generator, *, replacement: bool
) -> Verdict:
    """Wrong: accepts whatever the target might say too."""
    path = [0]
    while below := [n for n in tree.children()[path[-1]] if p[path[-1]][tree.tokens[n]] > 0]:
        path.append(below[0])
    return Verdict(path, draw(p[path[-1]], rng))


def forgets_replacement(
    tree: TokenTree, p: list[np.ndarray], q: list[np.ndarray | None], rng: np.random.Generator, *, replacement: bool
) -> Verdict:
    """Wrong: treats children drawn without replacement as if they had been drawn with it, and the other way round."""
    return accept_sampled(tree, p, q, rng, replacement=not replacement)


def with_q_of(options: SamplingOptions, seed: int) -> Accept:
    """Wrong: hands on a q that the token was not drawn from."""
    other = Language(2 * seed + 1, options)

    def accept(
        tree: TokenTree, p: list[np.ndarray], q: list[np.ndarray | None], rng: np.random.Generator, *, replacement: bool
    ) -> Verdict:
        return accept_sampled(tree, p, [None, *(other(()) for _ in q[1:])], rng, replacement=replacement)

    return accept


WRONG_SEED = 7
WRONG: dict[str, tuple[Accept, Shape]] = {
    "p instead of the residual": (keeps_p_after_refusal, SHAPES["chain of 1"]),
    "every draft accepted": (takes_every_draft, SHAPES["chain of 3"]),
    "replacement mixed up": (forgets_replacement, SHAPES["tree of 3, without replacement"]),
    "q of another temperature": (with_q_of(SAMPLING["temperature 0.6"], WRONG_SEED), SHAPES["chain of 1"]),
}


@click.command(help=__doc__)
@click.option("--draws", default=100_000)
def main(draws: int) -> None:
    smallest, failed, count = 1.0, 0, 0
    for name, shape, options, seed in configurations():
        value = p_value(shape, options, seed, draws)
        smallest, failed, count = min(smallest, value), failed + (value <= SMALLEST_P), count + 1
        click.echo(f"{value:.4f}  {name}")
    click.echo(
        f"{count} configurations, {draws} draws each: smallest p {smallest:.4f}, {failed} at or below {SMALLEST_P}"
    )
    for name, (accept, shape) in WRONG.items():
        value = p_value(shape, SAMPLING["temperature 1"], WRONG_SEED, draws, accept)
        click.echo(f"{value:.2e}  wrong on purpose: {name}: {'caught' if value <= SMALLEST_P else 'NOT CAUGHT'}")


if __name__ == "__main__":
    main()
