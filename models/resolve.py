"""From what a person calls a model to its file."""

from __future__ import annotations

import difflib
from pathlib import Path

from .checks import shown, user_path
from .errors import ModelFileError
from .hub import hub_file, is_hub_reference
from .shelves import ShelvedModel, shelved_models

_SUGGESTED = 3


def resolve_model(model: str | Path, option: str = "model") -> Path:
    """The path of a model that is named by a path, by its name as `edgespec list` shows it, or by its name on the hub.

    A path that exists comes first, so that a file in the working folder is never mistaken for another model.

    Args:
        option: what the caller calls it, for error messages.

    Raises:
        UsageError: not a name or path at all.
        ModelFileError: nothing of that name; suggests names that are alike, or says why the hub doesn't give it.
    """
    path = user_path(option, model)
    if isinstance(model, Path) or _exists(path) or _looks_like_path(model):
        return path
    found = shelved_models()
    match = _named(model, found)
    if match is not None:
        return match.path
    if is_hub_reference(model):
        return hub_file(model)
    alike = difflib.get_close_matches(model, [m.name for m in found], _SUGGESTED, 0.5)
    hint = f"; did you mean {' or '.join(alike)}?" if alike else "; `edgespec list` shows those that there are"
    if " " in model:
        hint += " (a prompt is given with -p)"
    raise ModelFileError(f"{shown(model)}: no such file, and no model of that name on this machine{hint}")


def _named(name: str, found: list[ShelvedModel]) -> ShelvedModel | None:
    """The first model of that name; a tag that is left out is `latest`, and case matters only between two matches."""
    for wanted in (name, f"{name}:latest"):
        exact = next((m for m in found if m.name == wanted), None)
        match = exact or next((m for m in found if m.name.lower() == wanted.lower()), None)
        if match is not None:
            return match
    return None


def _looks_like_path(name: str) -> bool:
    return name.endswith(".gguf") or name.startswith((".", "/", "~")) or "\\" in name


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long: no path, but perhaps said in full below
        return False
