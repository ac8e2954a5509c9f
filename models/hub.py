"""GGUF files from the Hugging Face hub, kept in its own cache that other tools share."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from .errors import ModelFileError, reason
from .shelves import is_whole_model

_REFERENCE = re.compile(r"([\w.-]+/[\w.-]+)(?::([\w./-]+))?", re.ASCII)
_PREFERRED = ("Q4_K_M", "Q4_K_S", "Q4_0", "Q4_1", "Q5_K_M", "Q6_K", "Q8_0")
"""Taken where nothing is asked for: four bits are what most people run."""
_LISTED = 12
_PATIENCE_S = 10.0
"""How long the hub may take to say what a repository holds."""
_CHECKPOINT_FILES = ("*.safetensors", "*.json", "*.model", "*.jinja", "*.txt", "*.tiktoken", "README.md")


def is_hub_reference(name: str) -> bool:
    """Whether it reads like `owner/name`, `owner/name:file` or `owner/name:quantization`."""
    return _REFERENCE.fullmatch(name) is not None


def hub_file(reference: str) -> Path:
    """A model file of the hub, downloaded unless it is there already; without a network, what is there.

    Raises:
        ModelFileError: no such repository or file, several that could be meant, or the hub can't be reached.
    """
    repository, wanted = _parts(reference)
    names, reached = _listed(reference, repository)
    name = choose(names, wanted, reference)
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(repository, name, endpoint=_endpoint(), local_files_only=not reached))
    except Exception as error:
        raise ModelFileError(f"{reference}: {name} can't be downloaded: {reason(error)}") from None


def hub_checkpoint(reference: str) -> Path | None:
    """The folder of a repository's checkpoint, downloaded unless it is there; None: one without safetensors weights.

    Code and pickles aren't downloaded.

    Raises:
        ModelFileError: no such repository, or the hub can't be reached.
    """
    repository, wanted = _parts(reference)
    if wanted is not None:  # a file of it, so a GGUF
        return None
    names, reached = _listed(reference, repository)
    if "config.json" not in names or not any(name.endswith(".safetensors") for name in names):
        return None
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            repository, allow_patterns=list(_CHECKPOINT_FILES), endpoint=_endpoint(), local_files_only=not reached
        )
        return Path(folder)
    except Exception as error:
        raise ModelFileError(f"{reference}: can't be downloaded: {reason(error)}") from None


def _parts(reference: str) -> tuple[str, str | None]:
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise ModelFileError(f"{reference}: isn't a name on the hub; those are like owner/name:file")
    return match[1], match[2]


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT") or None


def _listed(reference: str, repository: str) -> tuple[list[str], bool]:
    """Names of a repository's files, and whether the hub was reached; if not, of those downloaded before."""
    # imported here: it takes a quarter of a second, which other models don't need
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        # asked for in one request: listing the tree tries up to twenty times, which is a long wait without a network
        info = HfApi(endpoint=_endpoint()).model_info(repository, timeout=_PATIENCE_S)
        return [file.rfilename for file in info.siblings or ()], True
    except GatedRepoError:
        raise ModelFileError(
            f"{reference}: the hub gives it only to those who asked; log in with: hf auth login"
        ) from None
    except RepositoryNotFoundError:
        raise ModelFileError(
            f"{reference}: the hub has no such repository, or only for those who log in (hf auth login)"
        ) from None
    except Exception as error:  # no network in many ways, none of them documented
        names = _cached(repository)
        if not names:
            # what connections say is a paragraph of addresses, where their kind says as much; not so the hub's answers
            unanswered = isinstance(error, OSError) and getattr(error, "response", None) is None
            why = type(error).__name__ if unanswered else reason(error)
            raise ModelFileError(
                f"{reference}: the hub can't be reached: {why}; name a file or folder on this machine instead"
            ) from None
        return names, False


def choose(names: Sequence[str], wanted: str | None, reference: str) -> str:
    """The file of a repository that is meant.

    Args:
        wanted: a file's name, with or without folder and ending, or a quantization such as Q4_K_M; None: the usual one.

    Raises:
        ModelFileError: none, or several; lists what there is.
    """
    models = [name for name in names if is_whole_model(PurePosixPath(name).name)]
    if not models:
        raise ModelFileError(f"{reference}: this repository holds no GGUF file of one part; name another one")
    if wanted is not None:
        exact = [n for n in models if wanted in (n, PurePosixPath(n).name, PurePosixPath(n).stem)]
        found = exact or [n for n in models if _is_quantized_as(n, wanted)]
    else:
        quantized = ([n for n in models if _is_quantized_as(n, kind)] for kind in _PREFERRED)
        found = models if len(models) == 1 else next((names for names in quantized if names), models)
    if len(found) != 1:
        listed = ", ".join(sorted(found or models)[:_LISTED])
        problem = "several files could be meant" if found else f"no file is called or quantized as {wanted}"
        raise ModelFileError(f"{reference}: {problem}; name one after a colon: {listed}")
    return found[0]


def _is_quantized_as(name: str, kind: str) -> bool:
    """Whether a file's name says so: `model-Q4_K_M.gguf`, `model.q4_k_m.gguf`."""
    parts = re.split(r"[.-]", PurePosixPath(name).stem)
    return kind.lower() in (part.lower() for part in parts)


def _cached(repository: str) -> list[str]:
    """Files of a repository that were downloaded before."""
    from huggingface_hub.constants import HF_HUB_CACHE

    snapshots = Path(HF_HUB_CACHE, f"models--{repository.replace('/', '--')}", "snapshots")
    found = (path for path in snapshots.glob("*/**/*") if path.is_file())
    return sorted({"/".join(path.relative_to(snapshots).parts[1:]) for path in found})
