"""Models on this machine: our own, and those that other programs downloaded, which are only read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from .cache import cache_folder
from .errors import ModelFileError
from .json_file import read_json
from .manifest import MANIFEST_NAME

_MOST_MANIFEST_BYTES = 1 << 20
SHELVES = ("edgespec", "hub", "ollama", "lmstudio")
_MODEL_LAYER = "application/vnd.ollama.image.model"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_OLLAMA_REGISTRY, _OLLAMA_NAMESPACE = "registry.ollama.ai", "library"


@dataclass(frozen=True, slots=True)
class ShelvedModel:
    """A model that was found.

    Attributes:
        name: what it is called on the command line.
        path: a pack folder or a GGUF file.
        size: bytes of its files.
        shelf: whose it is: one of `SHELVES`.
    """

    name: str
    path: Path
    size: int
    shelf: str


def own_shelf() -> Path:
    """Where packs live that are known by name: `EDGESPEC_MODELS`, or the system's folder for a user's data."""
    named = os.environ.get("EDGESPEC_MODELS")
    return Path(named) if named else Path(platformdirs.user_data_dir("edgespec", appauthor=False)) / "models"


def shelved_models() -> list[ShelvedModel]:
    """All models found, our own first. What can't be read or isn't whole is left out."""
    found = [*_own(), *_hub(), *_ollama(), *_lm_studio()]
    return sorted(found, key=lambda model: (SHELVES.index(model.shelf), model.name.lower()))


def _own() -> Iterator[ShelvedModel]:
    for path in _children(own_shelf()):
        if _is_file(path / MANIFEST_NAME):
            yield ShelvedModel(path.name, path, sum(map(_size, _children(path))), "edgespec")
        elif path.suffix == ".gguf" and _is_file(path):
            yield ShelvedModel(path.stem, path, _size(path), "edgespec")
    # imported here: it brings HTTP and archives, 4 MiB that whoever names a file doesn't need
    from .registry import DEFAULT_MODEL

    default = cache_folder() / "models" / DEFAULT_MODEL.file
    if _size(default) == DEFAULT_MODEL.size:
        yield ShelvedModel(DEFAULT_MODEL.name, default, DEFAULT_MODEL.size, "edgespec")


def _hub() -> Iterator[ShelvedModel]:
    """The Hugging Face hub's cache keeps `models--owner--name/snapshots/commit/file`, with links to files by hash."""
    named = os.environ.get("HF_HUB_CACHE")
    home = Path(os.environ.get("HF_HOME") or _home() / ".cache/huggingface")
    for repository in _children(Path(named) if named else home / "hub"):
        parts = repository.name.split("--")
        if parts[0] == "models" and len(parts) == 3:
            files = {path.name: path for path in _descendants(repository / "snapshots", 2) if is_whole_model(path.name)}
            for name, path in files.items():
                yield ShelvedModel(f"{parts[1]}/{parts[2]}:{name.removesuffix('.gguf')}", path, _size(path), "hub")


def _ollama() -> Iterator[ShelvedModel]:
    """Ollama keeps files named by their hash, and for each model a manifest in `registry/namespace/model/tag`."""
    named = os.environ.get("OLLAMA_MODELS")
    folders = [Path(named)] if named else [_home() / ".ollama/models", Path("/usr/share/ollama/.ollama/models")]
    for folder in folders:
        for path in _descendants(folder / "manifests", 4):
            blob = _ollama_blob(path, folder / "blobs")
            if blob is not None:
                *place, model, tag = path.relative_to(folder / "manifests").parts
                prefix = "/".join(part for part in place if part not in (_OLLAMA_REGISTRY, _OLLAMA_NAMESPACE))
                yield ShelvedModel(f"{prefix}/{model}:{tag}".lstrip("/"), blob, _size(blob), "ollama")


def _ollama_blob(manifest: Path, blobs: Path) -> Path | None:
    """The GGUF that a manifest names; None where it names none that is there."""
    try:
        content = read_json(manifest, _MOST_MANIFEST_BYTES, "download the model again")
    except (ModelFileError, FileNotFoundError):
        return None
    layers = content.get("layers") if isinstance(content, dict) else None
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, dict) and layer.get("mediaType") == _MODEL_LAYER:
            digest = _DIGEST.fullmatch(str(layer.get("digest")))
            blob = blobs / f"sha256-{digest[1]}" if digest else None
            if blob is not None and _is_file(blob) and _size(blob) == layer.get("size"):
                return blob
    return None


def _lm_studio() -> Iterator[ShelvedModel]:
    """LM Studio keeps files as `publisher/repository/file.gguf`."""
    for folder in (_home() / ".lmstudio/models", _home() / ".cache/lm-studio/models"):
        for path in _descendants(folder, 3):
            if is_whole_model(path.name):
                name = path.relative_to(folder).with_suffix("").as_posix()
                yield ShelvedModel(name, path, _size(path), "lmstudio")


def is_whole_model(name: str) -> bool:
    """Projectors of vision models aren't models of their own, and parts of split files aren't whole."""
    return name.endswith(".gguf") and not name.startswith("mmproj") and not re.search(r"-\d{5}-of-\d{5}\.gguf$", name)


def _descendants(folder: Path, depth: int) -> Iterator[Path]:
    """Files exactly so many levels below a folder."""
    for path in _children(folder):
        if depth > 1:
            yield from _descendants(path, depth - 1)
        elif _is_file(path):
            yield path


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a user without one
        return Path("/nonexistent")
