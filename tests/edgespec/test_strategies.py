from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgespec.models.errors import UsageError
from edgespec.models.manifest import Pack
from edgespec.strategies import Parts, make_drafters

from .scripted import ScriptedRuntime, says


def parts(draft: bool = False, can_rewind: bool = True) -> Parts:
    target = ScriptedRuntime(says([], []))
    target.can_rewind = can_rewind
    pack = Pack(Path("target.gguf"), Path("draft.gguf") if draft else None)
    return Parts(pack, target, lambda: (ScriptedRuntime(says([], [])), None), 1)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("strategy", "draft", "names"),
    [("plain", True, []), ("auto", False, ["lookup"]), ("auto", True, ["lookup", "draft"]),
     ("lookup", True, ["lookup"]),
     ("draft", True, ["draft"])],
)  # fmt: skip
def test_a_strategy_stands_for_its_drafters(strategy: str, draft: bool, names: list[str]) -> None:
    assert [drafter.name for drafter in make_drafters(strategy, parts(draft), {})] == names


def test_a_model_that_cannot_rewind_runs_plainly_under_auto_and_says_so_otherwise() -> None:
    assert make_drafters("auto", parts(can_rewind=False), {}) == []
    with pytest.raises(UsageError, match="rewound"):
        make_drafters("lookup", parts(can_rewind=False), {})


def test_a_draft_that_does_not_fit_is_closed_again() -> None:
    runtime = ScriptedRuntime(says([], []))
    runtime.vocabulary.fingerprint = "another"
    runtime.vocabulary.text = lambda token: f"other {token}"  # type: ignore[method-assign]
    made: Any = parts(draft=True)
    made = Parts(made.pack, made.target, lambda: (runtime, None), 1)  # type: ignore[arg-type,return-value]
    with pytest.raises(Exception, match="vocabulary"):
        make_drafters("draft", made, {})
    assert runtime.closed


def test_what_was_made_before_is_used_again() -> None:
    made: dict[str, Any] = {}
    first = make_drafters("auto", parts(draft=True), made)
    assert make_drafters("draft", parts(draft=True), made) == [first[1]]
    assert set(made) == {"lookup", "draft"}
