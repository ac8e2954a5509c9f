"""The `Drafter` protocol, and what passes between the loop and a drafter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from edgespec.runtimes.tree import TokenTree

from ..sampling import Sampler


@dataclass
class Context:
    """One answer in the making.

    Attributes:
        tokens: prompt and answer so far. The target's cache holds all but the last.
        prompt_length: how many of them are the prompt.
        sampler: how the target's next token is chosen, which a drafter that draws must imitate.
        seed: of `rng`, the only source of chance; what `numpy.random.default_rng` takes.
        prediction: tokens that the caller expects the answer to resemble.
    """

    tokens: list[int]
    prompt_length: int
    sampler: Sampler
    seed: int | np.random.Generator | None = None
    prediction: tuple[int, ...] = ()

    @cached_property
    def rng(self) -> np.random.Generator:
        # made when something is drawn: numpy's generators take 7 MiB, which greedy decoding can do without
        return np.random.default_rng(self.seed)

    def history(self, path: list[int]) -> list[int]:
        """The tokens that penalties look at after the draft tokens of `path`."""
        window = self.sampler.window
        return (self.tokens[-window:] + path) if window else path


class Draft(NamedTuple):
    """A proposal: a tree under the context's last token, and for each node the q that its token was drawn from.

    A q of None means that the token was chosen, not drawn (one-hot).
    """

    tree: TokenTree
    q: tuple[np.ndarray | None, ...]

    @classmethod
    def chosen(cls, tokens: list[int]) -> Draft:
        """A chain of tokens that were not drawn."""
        return cls(TokenTree.chain(tokens), (None,) * len(tokens))


NO_DRAFT = Draft.chosen([])


class Prospect(NamedTuple):
    """What a drafter could propose now, said before it does the work.

    Attributes:
        group: drafts of one group are expected to fare alike; acceptance is counted for each.
        limit: the most tokens.
        prior: acceptance to expect for each token before anything was counted.
        setup_seconds: what it takes once before drafting can start, such as reading what the target read meanwhile.
    """

    group: int
    limit: int
    prior: float
    setup_seconds: float = 0.0


class Outcome(NamedTuple):
    """What became of a draft.

    Attributes:
        drafter: who drafted.
        group: of the prospect that led to it.
        tree: the rooted tree that was verified.
        path: the accepted nodes, root first.
        draft_seconds, target_seconds: what drafting and the verification pass took.
    """

    drafter: str
    group: int
    tree: TokenTree
    path: list[int]
    draft_seconds: float
    target_seconds: float

    @property
    def drafted(self) -> int:
        return len(self.tree) - 1

    @property
    def accepted(self) -> int:
        return len(self.path) - 1


class Drafter(Protocol):
    """Proposes what the target may say next."""

    name: str

    def prospect(self, context: Context) -> Prospect | None:
        """What could be drafted here; None: nothing."""

    def draft(self, context: Context, budget: int) -> Draft:
        """A tree of at most `budget` nodes; may be empty."""

    def observe(self, outcome: Outcome) -> None:
        """Called after each pass on a draft of this drafter."""

    def close(self) -> None:
        """Free what it holds."""
