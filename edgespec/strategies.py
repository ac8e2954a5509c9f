"""Names of strategies, and the drafters behind them. A new strategy is one file in `drafters/` and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgespec.models.errors import UsageError
from edgespec.models.manifest import Pack
from edgespec.models.shelves import shelved_models
from edgespec.runtimes.base import Runtime

from .costs import CostCurve
from .draft_finder import draft_advice
from .drafters.base import Drafter


@dataclass(frozen=True, slots=True)
class Parts:
    """What drafters are made from."""

    pack: Pack
    target: Runtime
    load_draft: Callable[[], tuple[Runtime, CostCurve]]
    """Loads the pack's draft model and measures it."""
    draft_branches: int


def _lookup(parts: Parts) -> Drafter | None:
    from .drafters.lookup import Lookup

    return Lookup()


def _draft(parts: Parts) -> Drafter | None:
    if parts.pack.draft is None:
        return None
    from edgespec.models.vocabularies import differing_tokens

    from .drafters.draft_model import DraftModel

    runtime, curve = parts.load_draft()
    try:
        excluded = differing_tokens(parts.target.vocabulary, runtime.vocabulary)
        return DraftModel(runtime, parts.target.vocabulary.size, excluded, curve, parts.draft_branches)
    except BaseException:
        runtime.close()
        raise


DRAFTERS: dict[str, Callable[[Parts], Drafter | None]] = {"lookup": _lookup, "draft": _draft}
"""Strategy -> its drafter, or None where the pack lacks what it needs."""

STRATEGIES = ("auto", "plain", *DRAFTERS)


def make_drafters(strategy: str, parts: Parts, made: dict[str, Drafter]) -> list[Drafter]:
    """The drafters that one of `STRATEGIES` runs with; `auto`: all that the pack allows.

    Args:
        made: drafters that were made before, by name; new ones are added.

    Raises:
        UsageError: the pack or the model can't run it.
    """
    if strategy == "plain" or (strategy == "auto" and not parts.target.can_rewind):
        return []
    if not parts.target.can_rewind:
        raise UsageError(f"strategy {strategy}: this model's state can't be rewound after a refused draft; use plain")
    found = []
    for name, make in DRAFTERS.items():
        if strategy not in ("auto", name):
            continue
        drafter = made.get(name) or make(parts)
        if drafter is not None:
            made[name] = drafter
            found.append(drafter)
    if not found:
        raise UsageError(
            f"strategy {strategy} needs a draft model: {draft_advice(parts.pack.target, shelved_models())}"
        )
    return found
