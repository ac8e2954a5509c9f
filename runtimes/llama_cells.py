"""Which cells of llama.cpp's cache belong to which node of a tree.

llama.cpp knows no trees, but a cell of its unified cache may belong to several sequence ids, and a token attends to
the cells that share an id with it. So each leaf of a tree gets an id of its own, and a node carries the ids of all
leaves below it. llama.cpp wants the ids that meet in one token to have had the same history before; each id beside a
sequence's own (a *branch*) therefore keeps a copy of the committed part, brought up to date when it is needed (copies
are entries in a table, no weights or states move).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from edgespec.models.errors import ContextFull

from .tree import NO_PARENT, TokenTree


class CellTable(Protocol):
    """llama.cpp's calls on the cells of its cache; `end` -1 means to the end."""

    def remove(self, seq_id: int, start: int, end: int) -> None: ...
    def copy(self, source: int, target: int, start: int, end: int) -> None: ...


@dataclass(slots=True)
class Branch:
    seq_id: int
    synced: int = 0
    """Leading positions that this branch shares with the committed part of its sequence."""


@dataclass(slots=True)
class LlamaSequence:
    """Implements `Sequence`. Positions 0 to length - 1 are committed; tree nodes stand behind them by depth."""

    seq_id: int
    length: int = 0
    tree: TokenTree | None = None
    branches: list[Branch] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    """For each evaluated node an id whose cells are exactly the committed part and the path down to below the node."""
    tips: dict[int, int] = field(default_factory=dict)
    """For each id in use by the tree, the deepest node that it covers."""
    open: bool = True


class CellPlan:
    """Hands out sequence ids and keeps each sequence's cells in step with its commits."""

    def __init__(self, cells: CellTable, sequences: int, branches: int) -> None:
        self._cells = cells
        self._free = list(range(sequences))[::-1]
        self._free_branches = list(range(sequences, sequences + branches))[::-1]

    def open(self) -> LlamaSequence:
        if not self._free:
            raise ContextFull("all sequences of this runtime are open; load it with more (RuntimeOptions.sequences)")
        return LlamaSequence(self._free.pop())

    def release(self, sequence: LlamaSequence) -> None:
        if sequence.open:
            self.truncate(sequence, 0)
            self._free_branches.extend(branch.seq_id for branch in sequence.branches)
            sequence.branches.clear()
            self._free.append(sequence.seq_id)
            sequence.open = False

    def place(self, sequence: LlamaSequence, tree: TokenTree) -> list[list[int]]:
        """The sequence ids of each node that is not evaluated yet, ready for a batch."""
        start = len(sequence.owners)
        known = sequence.tree
        if known is not None and (tree.tokens[:start], tree.parents[:start]) != (known.tokens, known.parents):
            raise ValueError("a tree must extend the one that was computed before; commit or truncate first")
        inner = set(tree.parents[start:])
        ids: dict[int, list[int]] = {node: [] for node in range(start, len(tree))}
        sequence.tree = tree
        for leaf in ids:
            if leaf in inner:
                continue
            path, node = [], leaf
            while node >= start:
                path.append(node)
                node = tree.parents[node]
            seq_id = self._id_from(sequence, node)
            sequence.tips[seq_id] = leaf
            for node in path:
                ids[node].append(seq_id)
        sequence.owners.extend(seq_ids[0] for seq_ids in ids.values())
        return list(ids.values())

    def _id_from(self, sequence: LlamaSequence, anchor: int) -> int:
        """An id that covers exactly the path down to `anchor`: one that ends there, or a new branch."""
        if not sequence.tips:
            sequence.tips[sequence.seq_id] = NO_PARENT
        for seq_id, tip in sequence.tips.items():
            if tip == anchor:
                return seq_id
        branch = next((b for b in sequence.branches if b.seq_id not in sequence.tips), None)
        if branch is None:
            if not self._free_branches:
                raise ContextFull("the tree has more leaves than RuntimeOptions.branches allows")
            branch = Branch(self._free_branches.pop())
            sequence.branches.append(branch)
        sequence.tips[branch.seq_id] = anchor
        if branch.synced < sequence.length:
            self._cells.copy(sequence.seq_id, branch.seq_id, branch.synced, sequence.length)
            branch.synced = sequence.length
        if anchor != NO_PARENT and sequence.tree is not None:
            end = sequence.length + len(sequence.tree.path(anchor))
            self._cells.copy(sequence.owners[anchor], branch.seq_id, sequence.length, end)
        return branch.seq_id

    def commit(self, sequence: LlamaSequence, path: list[int]) -> None:
        tree, old = sequence.tree, sequence.length
        if tree is None or not path:
            self.truncate(sequence, old)
            return
        if any(
            parent != above
            for parent, above in zip(map(tree.parents.__getitem__, path), [NO_PARENT, *path], strict=False)
        ):
            raise ValueError(f"{path} isn't a path from the top of the tree")
        new = old + len(path)
        owner, own = sequence.owners[path[-1]], sequence.seq_id
        if owner != own:
            self._cells.remove(own, old, -1)
            self._cells.copy(owner, own, old, new)
        elif sequence.tips[own] != path[-1]:
            self._cells.remove(own, new, -1)
        sequence.length = new
        self._forget_tree(sequence)

    def truncate(self, sequence: LlamaSequence, length: int) -> None:
        """Also mends a sequence that an exception left in the middle of a pass."""
        if length > sequence.length:
            raise ValueError(f"can't truncate {sequence.length} tokens to {length}")
        # first what we claim, then the cells: interrupted in between, too many cells are mended by the next call, too
        # few would be taken for tokens that are cached
        sequence.length = length
        for branch in sequence.branches:
            branch.synced = min(branch.synced, length)
        self._cells.remove(sequence.seq_id, length, -1)
        self._forget_tree(sequence)

    def _forget_tree(self, sequence: LlamaSequence) -> None:
        sequence.tree = None
        sequence.owners.clear()
        sequence.tips.clear()
        for branch in sequence.branches:
            self._cells.remove(branch.seq_id, branch.synced, -1)
