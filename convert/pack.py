"""Writes a pack: copies its files into a folder and describes them in `edgespec.json`."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from edgespec.models.digests import sha256_of
from edgespec.models.errors import ModelFileError
from edgespec.models.manifest import MANIFEST_NAME, check_name, validate_manifest


def write_pack(
    folder: Path,
    target: Path,
    draft: Path | None = None,
    template: str | None = None,
    made: dict[str, Any] | None = None,
    scratch: Path | None = None,
) -> None:
    """Write a pack whole or not at all: into a folder beside it, which is renamed at the end.

    Files on the same disk are linked, not copied.

    Args:
        template: a chat template that replaces the target's own.
        made: how it was made, for the manifest.
        scratch: a folder on the same disk to work in; what is in it is the caller's to tidy up after a kill.

    Raises:
        ModelFileError: the folder exists already, or a source can't be read.
    """
    if folder.exists():
        raise ModelFileError(f"{folder}: exists already; remove it first or choose another name")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch or folder.parent, prefix=f".{folder.name}.") as place:
        inside = Path(place, "pack")
        inside.mkdir()
        manifest: dict[str, Any] = {"format": 1, "target": _place(target, inside)}
        if draft is not None:
            manifest["draft"] = _place(draft, inside)
        if template is not None:
            manifest["template"] = template
        if made is not None:
            manifest["made"] = made
        validate_manifest(manifest, folder / MANIFEST_NAME)
        (inside / MANIFEST_NAME).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", "utf-8")
        inside.rename(folder)


def _place(source: Path, folder: Path) -> dict[str, str]:
    if not source.is_file():
        raise ModelFileError(f"{source}: no such file")
    check_name(source.name, source)
    target = folder / source.name
    if target.exists():
        raise ModelFileError(f"{source}: a pack can't hold two files of this name; rename one")
    try:
        target.hardlink_to(source.resolve())
    except OSError:  # another disk, or one without hard links
        shutil.copyfile(source, target)
    return {"file": source.name, "sha256": sha256_of(source)}
