"""Token trees: what one verification pass looks at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NO_PARENT = -1


@dataclass(frozen=True, slots=True)
class TokenTree:
    """Tokens and the index of each one's parent; `NO_PARENT` hangs under the last committed token of the sequence.

    Parents stand before their children. A chain is a tree without branches.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.parents):
            raise ValueError(f"{len(self.tokens)} tokens but {len(self.parents)} parents")
        if any(not NO_PARENT <= parent < node for node, parent in enumerate(self.parents)):
            raise ValueError("a parent must stand before its child")

    @classmethod
    def chain(cls, tokens: Sequence[int]) -> TokenTree:
        return cls(tuple(tokens), tuple(range(NO_PARENT, len(tokens) - 1)))

    def __len__(self) -> int:
        return len(self.tokens)

    def rooted(self, root: int) -> TokenTree:
        """The same tree under a first node `root`; every node's index grows by one."""
        return TokenTree((root, *self.tokens), (NO_PARENT, *(parent + 1 for parent in self.parents)))

    def depths(self) -> tuple[int, ...]:
        """Depth of each node; nodes without a parent have depth 0."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(0 if parent == NO_PARENT else depths[parent] + 1)
        return tuple(depths)

    def children(self) -> tuple[tuple[int, ...], ...]:
        """The children of each node, in the order of their indices."""
        children: list[list[int]] = [[] for _ in self.tokens]
        for node, parent in enumerate(self.parents):
            if parent != NO_PARENT:
                children[parent].append(node)
        return tuple(map(tuple, children))

    def path(self, node: int) -> list[int]:
        """Nodes from the top down to `node`, inclusive."""
        path = []
        while node != NO_PARENT:
            path.append(node)
            node = self.parents[node]
        return path[::-1]
