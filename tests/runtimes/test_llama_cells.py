"""The bookkeeping of sequence ids against a model of llama.cpp's cells and the rules that it checks batches by."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.runtimes.llama_cells import CellPlan, LlamaSequence
from edgespec.runtimes.tree import TokenTree


class Cells:
    """llama.cpp's unified cache, as a list of (position, token, ids)."""

    def __init__(self) -> None:
        self.cells: list[tuple[int, int, set[int]]] = []

    def remove(self, seq_id: int, start: int, end: int) -> None:
        for position, _, ids in self.cells:
            if position >= start and (end < 0 or position < end):
                ids.discard(seq_id)
        self.cells = [cell for cell in self.cells if cell[2]]

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        for position, _, ids in self.cells:
            if source in ids and start <= position < end:
                assert target not in ids, "copied twice"
                ids.add(target)

    def history(self, seq_id: int, below: int | None = None) -> list[int]:
        cells = sorted((p, t) for p, t, ids in self.cells if seq_id in ids and (below is None or p < below))
        assert [p for p, _ in cells] == list(range(len(cells))), "positions with gaps or twice"
        return [t for _, t in cells]

    def decode(self, batch: list[tuple[int, int, list[int]]]) -> None:
        """Add a batch as llama.cpp would, and assert what it asserts."""
        for position, _, ids in batch:
            # ids that meet in a token must have had the same history
            assert len({tuple(self.history(i)) for i in ids}) == 1 or len(ids) == 1
            assert ids
            assert position >= 0
        for seq_id in {i for _, _, ids in batch for i in ids}:
            own = [p for p, _, ids in batch if seq_id in ids]
            assert own == list(range(len(self.history(seq_id)), len(self.history(seq_id)) + len(own)))
        self.cells += [(position, token, set(ids)) for position, token, ids in batch]


def evaluate(plan: CellPlan, cells: Cells, sequence: LlamaSequence, tree: TokenTree) -> None:
    start, depths = len(sequence.owners), tree.depths()
    placed = plan.place(sequence, tree)
    cells.decode([
        (sequence.length + depths[node], tree.tokens[node], ids) for node, ids in enumerate(placed, start)
    ])  # fmt: skip


@st.composite
def sessions(draw: st.DrawFn) -> list[tuple[list[int], int, int]]:
    """Rounds of (parents of a tree, how much of it is computed first, the node to commit; -1: none)."""
    rounds = []
    for _ in range(draw(st.integers(1, 6))):
        size = draw(st.integers(1, 8))
        parents = [-1, *(draw(st.integers(0, node - 1)) for node in range(1, size))]
        rounds.append((parents, draw(st.integers(1, size)), draw(st.integers(-1, size - 1))))
    return rounds


@settings(deadline=None, max_examples=300)
@given(sessions(), st.integers(0, 5))
def test_every_path_is_a_history_and_only_the_committed_one_stays(rounds: list, back: int) -> None:
    cells = Cells()
    plan = CellPlan(cells, sequences=2, branches=16)
    other = plan.open()
    evaluate(plan, cells, other, TokenTree.chain([7, 8, 9]))
    plan.commit(other, [0, 1, 2])
    sequence, said, counter = plan.open(), [], 100
    for parents, first, chosen in rounds:
        tokens = list(range(counter, counter + len(parents)))
        counter += len(parents)
        tree = TokenTree(tuple(tokens), tuple(parents))
        for size in sorted({first, len(tree)}):
            evaluate(plan, cells, sequence, TokenTree(tree.tokens[:size], tree.parents[:size]))
        for node in range(len(tree)):
            path = [tokens[n] for n in tree.path(node)]
            end = sequence.length + len(path)
            assert cells.history(sequence.owners[node], end) == said + path
        path = [] if chosen < 0 else tree.path(chosen)
        plan.commit(sequence, path)
        said += [tokens[n] for n in path]
        assert cells.history(sequence.seq_id) == said
        assert sum(1 for cell in cells.cells if sequence.seq_id not in cell[2]) == 3
        if back <= len(said) and chosen % 2:
            plan.truncate(sequence, len(said) - back)
            said = said[: len(said) - back]
            assert cells.history(sequence.seq_id) == said
    assert cells.history(other.seq_id) == [7, 8, 9]
    plan.release(sequence)
    plan.release(other)
    assert cells.cells == []


class InterruptedCells(Cells):
    """Cells of which the n-th call is interrupted, before or after it took effect."""

    def __init__(self, at: int, afterwards: bool) -> None:
        super().__init__()
        self.left, self.afterwards = at, afterwards

    def _call(self, call: Callable[[], None]) -> None:
        self.left -= 1
        if self.left != 0 or self.afterwards:
            call()
        if self.left == 0:
            raise KeyboardInterrupt

    def remove(self, seq_id: int, start: int, end: int) -> None:
        self._call(lambda: Cells.remove(self, seq_id, start, end))

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        self._call(lambda: Cells.copy(self, source, target, start, end))


@settings(deadline=None, max_examples=300)
@given(sessions(), st.integers(1, 40), st.booleans(), st.integers(0, 5))
def test_a_sequence_never_claims_cells_that_an_interrupt_lost(
    rounds: list, at: int, afterwards: bool, back: int
) -> None:
    cells = InterruptedCells(at, afterwards)
    plan = CellPlan(cells, sequences=1, branches=16)
    sequence, said, counter = plan.open(), [], 100
    for parents, _, chosen in rounds:
        tokens = list(range(counter, counter + len(parents)))
        counter += len(parents)
        tree = TokenTree(tuple(tokens), tuple(parents))
        path = [] if chosen < 0 else tree.path(chosen)
        said = said + [tokens[n] for n in path]
        try:
            evaluate(plan, cells, sequence, tree)
            plan.commit(sequence, path)
            if chosen % 2:
                plan.truncate(sequence, max(0, len(said) - back))
            plan.truncate(sequence, sequence.length)
        except KeyboardInterrupt:
            plan.truncate(sequence, sequence.length)  # what whoever catches it does
        said = said[: sequence.length]
        assert cells.history(sequence.seq_id) == said
