"""What a person calls the source of a conversion, and what is there: a checkpoint or a GGUF."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from edgespec.models.checks import user_path
from edgespec.models.errors import ModelFileError
from edgespec.models.gguf_check import checked_header
from edgespec.models.hub import hub_checkpoint, is_hub_reference
from edgespec.models.manifest import open_pack
from edgespec.models.resolve import resolve_model

from .checkpoint import Checkpoint, is_checkpoint, open_checkpoint

_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint or a GGUF, of which one is None.

    Attributes:
        name: what its files are called in a pack, without type and ending.
        state: names all files that the result depends on, with their sizes and times of change.
    """

    name: str
    state: str
    checkpoint: Checkpoint | None = None
    gguf: Path | None = None


def resolve_source(name: str, option: str = "SOURCE") -> Source:
    """Find a source: a checkpoint folder, a GGUF, a pack (its target), a name of `edgespec list`, or one on the hub.

    Raises:
        ModelFileError: it isn't there, isn't whole, or is nothing that can be converted.
        UsageError: not a name or path at all.
    """
    path = user_path(option, name)
    if not path.exists() and is_hub_reference(name) and path.suffix != ".gguf":
        folder = hub_checkpoint(name)
        if folder is not None:
            return _checkpoint_source(open_checkpoint(folder), name.rpartition("/")[2])
    path = resolve_model(name, option)
    if is_checkpoint(path):
        return _checkpoint_source(open_checkpoint(path), path.resolve().name)
    if path.is_dir() and any(path.glob("*.safetensors")):
        raise ModelFileError(f"{path}: has weights but no config.json; copy the original model's")
    target = open_pack(path).target
    checked_header(target)
    return Source(_file_name(target.stem if target.suffix == ".gguf" else name), _state([target]), gguf=target)


def _checkpoint_source(checkpoint: Checkpoint, name: str) -> Source:
    return Source(_file_name(name), _state(checkpoint.files()), checkpoint=checkpoint)


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip(".-")[:_LONGEST_NAME] or "model"


def _state(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        status = path.stat()
        digest.update(os.fsencode(path.name) + f"|{status.st_size}|{status.st_mtime_ns};".encode())
    return digest.hexdigest()
