"""What every `Runtime` must do. A backend gets these tests by subclassing `RuntimeConformance` with its `load`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.models.errors import ContextFull
from edgespec.runtimes import Runtime, TokenTree, Work

PROMPT = [100, 200, 300, 400, 500, 600, 700]
# two branches under the root, the first of which splits again
TREE = TokenTree((11, 22, 33, 44, 55, 66, 77), (-1, 0, 0, 1, 1, 2, 5))
NOISE = 2e-2
"""Between pass sizes, on the tiny model's logits of about -4 to 4; a wrong mask or position is off by more than 1."""


def full_logits(runtime: Runtime, tokens: list[int]) -> np.ndarray:
    """Logits after `tokens`, computed token by token on a sequence of its own."""
    sequence = runtime.open()
    runtime.prefill(sequence, tokens[:-1])
    (scores,) = runtime.forward([Work(sequence, TokenTree.chain(tokens[-1:]))])
    logits = scores.logits[-1].copy()
    runtime.release(sequence)
    return logits


class RuntimeConformance:
    """Subclass with `load`, a callable that loads the tiny model."""

    def load(self, path: Path, **options: Any) -> Runtime:
        raise NotImplementedError

    @pytest.fixture
    def runtime(self, tiny: Path) -> Iterator[Runtime]:
        runtime = self.load(tiny, ctx=256, sequences=4, threads=1)
        yield runtime
        runtime.close()

    def test_implements_the_protocol(self, runtime: Runtime) -> None:
        assert isinstance(runtime, Runtime)
        assert runtime.vocabulary.size == 1024

    def test_each_tree_node_sees_exactly_its_own_path(self, runtime: Runtime) -> None:
        sequence = runtime.open()
        runtime.prefill(sequence, PROMPT)
        (scores,) = runtime.forward([Work(sequence, TREE)])
        logits = scores.logits.copy()
        for node in range(len(TREE)):
            path = [TREE.tokens[n] for n in TREE.path(node)]
            np.testing.assert_allclose(logits[node], full_logits(runtime, PROMPT + path), atol=NOISE)

    @pytest.mark.parametrize("leaf", [3, 4, 6, 2, 0])
    def test_a_committed_path_continues_as_if_it_had_been_a_chain(self, runtime: Runtime, leaf: int) -> None:
        sequence = runtime.open()
        runtime.prefill(sequence, PROMPT)
        runtime.forward([Work(sequence, TREE)])
        path = TREE.path(leaf)
        runtime.commit(sequence, path)
        assert sequence.length == len(PROMPT) + len(path)
        (scores,) = runtime.forward([Work(sequence, TokenTree.chain([88]))])
        expected = full_logits(runtime, [*PROMPT, *(TREE.tokens[n] for n in path), 88])
        np.testing.assert_allclose(scores.logits[0], expected, atol=NOISE)

    def test_a_tree_can_grow_level_by_level(self, runtime: Runtime) -> None:
        sequence = runtime.open()
        runtime.prefill(sequence, PROMPT)
        rows = []
        for size in (1, 3, 6, 7):
            part = TokenTree(TREE.tokens[:size], TREE.parents[:size])
            (scores,) = runtime.forward([Work(sequence, part)])
            rows.append(scores.logits.copy())
        grown = np.concatenate(rows)
        assert grown.shape == (7, 1024)
        for node in range(7):
            path = [TREE.tokens[n] for n in TREE.path(node)]
            np.testing.assert_allclose(grown[node], full_logits(runtime, PROMPT + path), atol=NOISE)
        runtime.commit(sequence, TREE.path(6))
        assert sequence.length == len(PROMPT) + 4

    def test_a_tree_that_contradicts_the_one_before_is_refused(self, runtime: Runtime) -> None:
        sequence = runtime.open()
        runtime.forward([Work(sequence, TokenTree.chain([1, 2]))])
        with pytest.raises(ValueError, match="extend"):
            runtime.forward([Work(sequence, TokenTree.chain([1, 3, 4]))])

    def test_refused_draft_leaves_no_trace(self, runtime: Runtime) -> None:
        sequence = runtime.open()
        runtime.prefill(sequence, PROMPT)
        for _ in range(60):  # more drafts than cells: any that stayed would fill the cache
            runtime.forward([Work(sequence, TREE)])
            runtime.commit(sequence, [0])
            runtime.truncate(sequence, len(PROMPT))
        (scores,) = runtime.forward([Work(sequence, TokenTree.chain([11]))])
        np.testing.assert_allclose(scores.logits[0], full_logits(runtime, [*PROMPT, 11]), atol=NOISE)

    def test_truncate_goes_back_to_any_length(self, runtime: Runtime) -> None:
        sequence = runtime.open()
        runtime.prefill(sequence, PROMPT)
        runtime.truncate(sequence, 3)
        runtime.prefill(sequence, [9, 8])
        (scores,) = runtime.forward([Work(sequence, TokenTree.chain([7]))])
        np.testing.assert_allclose(scores.logits[0], full_logits(runtime, [*PROMPT[:3], 9, 8, 7]), atol=NOISE)

    def test_sequences_do_not_see_each_other(self, runtime: Runtime) -> None:
        prompts = [[1, 2, 3], [4, 5, 6, 7, 8], PROMPT]
        sequences = [runtime.open() for _ in prompts]
        for sequence, prompt in zip(sequences, prompts, strict=True):
            runtime.prefill(sequence, prompt)
        scores = runtime.forward([Work(s, TREE) for s in sequences])
        rows = [s.logits.copy() for s in scores]
        for sequence in sequences[1:]:
            runtime.release(sequence)
        for prompt, logits in zip(prompts, rows, strict=True):
            expected = full_logits(runtime, [*prompt, 11, 22, 44])
            np.testing.assert_allclose(logits[3], expected, atol=NOISE)

    def test_only_the_rows_asked_for_come_out(self, runtime: Runtime) -> None:
        first, second = runtime.open(), runtime.open()
        a, b = runtime.forward([Work(first, TREE, rows=(2, 6)), Work(second, TREE, rows=())])
        assert a.logits.shape == (2, 1024)
        assert b.logits.shape == (0, 1024)
        assert a.hidden is None
        kept = a.logits.copy()
        runtime.truncate(first, 0)
        runtime.truncate(second, 0)
        (every,) = runtime.forward([Work(first, TREE)])
        np.testing.assert_allclose(kept, every.logits[[2, 6]], atol=NOISE)

    def test_hidden_states_are_those_that_the_logits_come_from(self, runtime: Runtime, tiny: Path) -> None:
        gguf = pytest.importorskip("gguf")
        tensors = {t.name: t.data for t in gguf.GGUFReader(tiny).tensors}
        output = tensors["output.weight"].astype(np.float64)
        first, second = runtime.open(), runtime.open()
        a, b = runtime.forward([Work(first, TREE, rows=(1, 5), hidden=True), Work(second, TREE, rows=(0,))])
        assert a.hidden is not None
        assert a.hidden.shape == (2, 64)
        assert b.hidden is None
        np.testing.assert_allclose(a.hidden @ output.T, a.logits, atol=NOISE)
        runtime.truncate(first, 0)
        (after,) = runtime.forward([Work(first, TokenTree.chain([1]))])
        assert after.hidden is None

    def test_prefill_in_chunks_is_prefill(self, tiny: Path) -> None:
        tokens = [(i * 37) % 1000 for i in range(150)]
        results = []
        for batch in (16, 512):
            runtime = self.load(tiny, ctx=256, batch=batch, draft_tokens=8, threads=1)
            results.append(full_logits(runtime, tokens))
            runtime.close()
        np.testing.assert_allclose(*results, atol=NOISE)

    def test_prefill_stops_between_chunks(self, tiny: Path) -> None:
        runtime = self.load(tiny, ctx=256, batch=16, draft_tokens=8, threads=1)
        sequence = runtime.open()
        calls = iter([False, False, True])
        assert runtime.prefill(sequence, list(range(100)), lambda: next(calls)) == 32
        assert sequence.length == 32
        runtime.close()

    def test_more_tokens_than_the_context_are_refused_and_change_nothing(self, runtime: Runtime) -> None:
        sequence = runtime.open()
        runtime.prefill(sequence, PROMPT)
        with pytest.raises(ContextFull, match="256"):
            runtime.prefill(sequence, [1] * 250)
        runtime.prefill(sequence, [1] * 249)
        assert sequence.length == 256
        with pytest.raises(ContextFull):
            runtime.forward([Work(sequence, TokenTree.chain([1]))])
        assert sequence.length == 256

    def test_a_tree_with_too_many_leaves_is_refused_and_the_sequence_stays_usable(self, tiny: Path) -> None:
        runtime = self.load(tiny, ctx=64, branches=2, threads=1)
        sequence = runtime.open()
        runtime.prefill(sequence, PROMPT)
        with pytest.raises(ContextFull, match="leaves"):
            runtime.forward([Work(sequence, TokenTree((1, 2, 3, 4), (-1, 0, 0, 0)))])
        assert sequence.length == len(PROMPT)
        runtime.forward([Work(sequence, TokenTree((1, 2, 3), (-1, 0, 0)))])
        runtime.close()

    def test_all_sequences_open_is_an_error_and_release_makes_room(self, runtime: Runtime) -> None:
        sequences = [runtime.open() for _ in range(4)]
        with pytest.raises(ContextFull):
            runtime.open()
        runtime.release(sequences[0])
        runtime.release(sequences[0])
        runtime.open()

    def test_closing_twice_is_harmless(self, tiny: Path) -> None:
        runtime = self.load(tiny, ctx=64, threads=1)
        runtime.close()
        runtime.close()

    def test_text_survives_the_vocabulary(self, runtime: Runtime) -> None:
        vocabulary = runtime.vocabulary
        for text in ("", "Hello, world!", "naïve café 你好 🙂", "a\x00b\n\t  c", " " * 70):
            tokens = vocabulary.encode(text, special=False, add_bos=False)
            assert b"".join(map(vocabulary.piece, tokens)).decode() == text

    def test_control_tokens_are_read_from_text_only_on_request(self, runtime: Runtime) -> None:
        vocabulary = runtime.vocabulary
        end = vocabulary.encode("<|im_end|>", special=True, add_bos=False)
        assert len(end) == 1
        assert end[0] in vocabulary.end_tokens
        assert vocabulary.piece(end[0]) == b""
        assert vocabulary.piece(end[0], special=True) == b"<|im_end|>"
        assert len(vocabulary.encode("<|im_end|>", special=False, add_bos=False)) > 1
