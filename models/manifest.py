"""The pack: a folder whose `edgespec.json` says which files belong together and how they were made."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from .digests import sha256_of
from .errors import ModelFileError
from .json_file import read_json

MANIFEST_NAME = "edgespec.json"
MAX_MANIFEST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class PackFile:
    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class HeadsFile:
    kind: str
    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class Pack:
    """Files that make up one model. A bare GGUF is a pack of a target alone, without a folder or hashes."""

    target: Path
    draft: Path | None = None
    heads: tuple[HeadsFile, ...] = ()
    template: str | None = None
    made: dict[str, Any] = field(default_factory=dict)


@cache
def manifest_schema() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("manifest.schema.json").read_text("utf-8")
    return dict(json.loads(text))


def open_pack(path: Path) -> Pack:
    """Open a pack folder, its `edgespec.json`, or a bare GGUF.

    Files named by a manifest are checked against their SHA-256 (remembered until a file changes).

    Raises:
        ModelFileError: names the file, what is wrong and what to do.
    """
    try:
        folder = path.is_dir()
    except OSError as error:  # a name too long, a loop of links
        raise ModelFileError(f"{path}: can't be read: {error.strerror or error}") from None
    if folder:
        return _read_manifest(path / MANIFEST_NAME)
    return _read_manifest(path) if path.name == MANIFEST_NAME else Pack(target=path)


def _read_manifest(path: Path) -> Pack:
    try:
        manifest = read_json(path, MAX_MANIFEST_BYTES, "make the pack again")
    except FileNotFoundError:
        raise ModelFileError(f"{path.parent}: a folder without {MANIFEST_NAME}; name a GGUF file or a pack") from None
    validate_manifest(manifest, path)
    target = _checked_file(path, manifest["target"])
    draft = _checked_file(path, manifest["draft"]) if "draft" in manifest else None
    heads = []
    for entry in manifest.get("heads", ()):
        file = _checked_file(path, entry)
        heads.append(HeadsFile(entry["kind"], file.path, file.sha256))
    return Pack(
        target=target.path,
        draft=draft.path if draft else None,
        heads=tuple(heads),
        template=manifest.get("template"),
        made=manifest.get("made", {}),
    )


def validate_manifest(manifest: Any, path: Path) -> None:
    """Hold a manifest against the schema.

    Raises:
        ModelFileError: names the first place that doesn't fit.
    """
    if isinstance(manifest, dict) and isinstance(manifest.get("format"), int) and manifest["format"] > 1:
        raise ModelFileError(f"{path}: pack format {manifest['format']} is newer than this edgespec knows; update it")
    # imported here: it costs 70 ms, and a bare GGUF doesn't need it
    import jsonschema

    validator = jsonschema.Draft202012Validator(manifest_schema())
    try:
        errors = sorted(validator.iter_errors(manifest), key=lambda e: list(map(str, e.path)))
    except RecursionError:
        raise ModelFileError(f"{path}: is nested too deeply to be a manifest; make the pack again") from None
    if errors:
        place = ".".join(map(str, errors[0].absolute_path)) or "the manifest"
        raise ModelFileError(f"{path}: {place}: {errors[0].message[:200]}; make the pack again")


def check_name(name: str, manifest: Path) -> None:
    """Refuse names that lead out of a pack's folder on any system, or that not every system can write.

    Raises:
        ModelFileError: names the file.
    """
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    if posix.is_absolute() or windows.root or windows.drive or ".." in posix.parts + windows.parts:
        raise ModelFileError(f"{manifest}: file {name!r} lies outside the pack, which isn't allowed")
    if name == MANIFEST_NAME:
        raise ModelFileError(f"{manifest}: a model file can't be called {MANIFEST_NAME}; rename it")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise ModelFileError(f"{manifest}: the file name {name!r} isn't UTF-8; rename it") from None


def _checked_file(manifest: Path, entry: dict[str, str]) -> PackFile:
    name = entry["file"]
    check_name(name, manifest)
    path = manifest.parent / name
    try:
        found = path.is_file()
    except OSError:  # a name too long for this system
        found = False
    if not found:
        raise ModelFileError(f"{manifest}: file {name!r} is missing from the pack; make or copy it again")
    if sha256_of(path) != entry["sha256"]:
        raise ModelFileError(
            f"{path}: its SHA-256 differs from the one in {MANIFEST_NAME}; make or copy the pack again"
        )
    return PackFile(path, entry["sha256"])
