from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgespec.loading import load
from edgespec.runtimes import RuntimeOptions, Work
from edgespec.runtimes.llamacpp import LlamaCpp
from edgespec.stability import stable_size

from .scripted import SIZE, ScriptedRuntime


class Rounding(ScriptedRuntime):
    """Rounds differently from some pass size on."""

    def __init__(self, changes_at: int, ctx: int = 256) -> None:
        super().__init__(lambda tokens: np.full(SIZE, sum(tokens), np.float32), ctx)
        self._changes_at = changes_at
        self.identity = f"rounding {changes_at} {ctx}"

    def forward(self, work: list[Work]) -> list:
        scores = super().forward(work)
        if len(work[0].tree) >= self._changes_at:
            scores[0].logits[-1, -1] += 1e-3
        return scores


@pytest.mark.parametrize("changes_at", [2, 3, 8, 17])
def test_the_last_size_before_results_change_is_found(changes_at: int) -> None:
    runtime = Rounding(changes_at)
    assert stable_size(runtime) == changes_at - 1
    passes = len(runtime.passes)
    assert stable_size(runtime) == changes_at - 1
    assert len(runtime.passes) == passes, "measured twice"


def test_a_backend_that_never_changes_is_stable_as_far_as_is_measured() -> None:
    assert stable_size(Rounding(1000)) == 17
    assert stable_size(Rounding(1000, ctx=10)) == 5


def test_drafts_stay_within_the_stable_size(tiny: Path, tiny_draft: Path) -> None:
    with load(tiny, strategy="plain", threads=1) as model:
        expected = model.complete("Hello", max_tokens=80).tokens
    runtime = LlamaCpp.load(tiny, RuntimeOptions(threads=1, branches=1, ctx=2048))
    size = stable_size(runtime)
    runtime.close()
    with load(tiny, draft=tiny_draft, strategy="draft", draft_length=16, bit_exact=True, threads=1) as model:
        sizes = []
        forward = model.runtime.forward
        model.runtime.forward = lambda work: sizes.append(len(work[0].tree)) or forward(work)  # type: ignore
        assert model.complete("Hello", max_tokens=80).tokens == expected
    assert max(sizes) <= size
