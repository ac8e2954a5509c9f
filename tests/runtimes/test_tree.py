from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.runtimes.tree import TokenTree


@st.composite
def trees(draw: st.DrawFn) -> TokenTree:
    size = draw(st.integers(1, 20))
    parents = [draw(st.integers(-1, node - 1)) for node in range(size)]
    return TokenTree(tuple(draw(st.integers(0, 50)) for _ in parents), tuple(parents))


@given(trees())
def test_paths_depths_and_children_tell_the_same_tree(tree: TokenTree) -> None:
    depths, children = tree.depths(), tree.children()
    for node in range(len(tree)):
        path = tree.path(node)
        assert len(path) == depths[node] + 1
        assert path[-1] == node
        for above, below in pairwise(path):
            assert below in children[above]
    assert sum(map(len, children)) == sum(parent != -1 for parent in tree.parents)


@given(trees(), st.integers(0, 50))
def test_rooting_moves_every_path_one_down(tree: TokenTree, root: int) -> None:
    rooted = tree.rooted(root)
    assert rooted.tokens == (root, *tree.tokens)
    for node in range(len(tree)):
        assert rooted.path(node + 1) == [0, *(n + 1 for n in tree.path(node))]


def test_a_chain_has_one_path() -> None:
    chain = TokenTree.chain([5, 6, 7])
    assert chain.parents == (-1, 0, 1)
    assert chain.path(2) == [0, 1, 2]


@pytest.mark.parametrize("parents", [(0,), (-1, 1), (-2,), (-1, 5)])
def test_a_parent_after_its_child_is_refused(parents: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="before"):
        TokenTree(tuple(range(len(parents))), parents)


def test_tokens_and_parents_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="2 tokens but 1 parents"):
        TokenTree((1, 2), (-1,))
