"""Which models on this machine could draft for a target, and why the others couldn't. Nothing is loaded for it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from edgespec.models.errors import EdgespecError, ModelFileError
from edgespec.models.gguf import GGUFHeader
from edgespec.models.gguf_check import checked_header
from edgespec.models.manifest import open_pack
from edgespec.models.shelves import ShelvedModel
from edgespec.models.vocabularies import HeaderVocabulary, differing_tokens

_MOST_SHARE = 0.5
"""Of the target's size: a draft that takes more than half as long as the target can't pay, however good it is."""


class DraftCandidate(NamedTuple):
    """A model that was looked at; `refusal` says why it can't draft, None that it can."""

    model: ShelvedModel
    refusal: str | None


def draft_candidates(target: Path, found: Iterable[ShelvedModel]) -> list[DraftCandidate]:
    """The models found, those that can draft for the target first, smallest first.

    Args:
        target: a GGUF file.

    Raises:
        ModelFileError: the target can't be read.
    """
    header = checked_header(target)
    vocabulary = HeaderVocabulary(header)
    candidates = [
        DraftCandidate(model, _refusal(model, header, vocabulary)) for model in found if not _same(model.path, target)
    ]
    return sorted(candidates, key=lambda c: (c.refusal is not None, c.model.size))


def draft_advice(target: Path, found: Iterable[ShelvedModel]) -> str:
    """What to give as a draft: the smallest model found that can, or why none can."""
    candidates = draft_candidates(target, found)
    if not candidates:
        return "give one with --draft FILE; no other model was found on this machine"
    best = candidates[0]
    if best.refusal is None:
        return f"--draft {best.model.name} would do ({best.model.size / 1e6:.0f} MB)"
    return (
        f"give one with --draft FILE; of {len(candidates)} other models on this machine none fits ({best.model.name}: "
        f"{best.refusal}; `edgespec show` has the rest)"
    )


def _refusal(model: ShelvedModel, target: GGUFHeader, vocabulary: HeaderVocabulary) -> str | None:
    try:
        path = open_pack(model.path).target if model.path.is_dir() else model.path
        header = checked_header(path)
        if header.digest == target.digest:
            return "it is the same model"
        if header.file_size > _MOST_SHARE * target.file_size:
            return f"it is {header.file_size / target.file_size:.0%} of the target's size"
        differing_tokens(vocabulary, HeaderVocabulary(header))
    except ModelFileError as error:
        return f"it can't be read ({error})"
    except EdgespecError as error:
        return str(error)
    return None


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
