"""Whether the kernels fit a model: its logits with them are held against llama.cpp's own once, in a child process.

Models may use their weights in ways that the kernels weren't written for, and a llama.cpp may be one that they weren't
tried with. What crashes there, or says something else, runs on llama.cpp's own code.

Run as `python -m edgespec.runtimes.kernels.trial FILE`, it is that child, which fails where they don't fit.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgespec.models.cache import recall, remember
from edgespec.models.child import Report, run_child, work_as_child
from edgespec.models.errors import ModelFileError
from edgespec.models.gguf import GGUFHeader

from . import Kernels, kernels

if TYPE_CHECKING:
    from ..llamacpp import LlamaCpp

_TOKENS = 8
_ROUNDING = 0.3
"""Largest |difference| / |logits|, in the mean over positions, that may be rounding: inputs of 8 bits make several per
cent, and a matrix in the wrong place more than 1."""


def misfit(header: GGUFHeader, identity: str) -> str:
    """Why a checked model may not run on the kernels of this identity; empty: it may. Tried once and remembered."""
    from ..llama_library import version

    key = hashlib.sha256(f"{header.digest}|{version()}|{identity}".encode()).hexdigest()[:32]
    known = recall("misfits", key)
    if not isinstance(known, str):
        known = _tried(header.path)
        remember("misfits", key, known)
    return known


def _tried(path: Path) -> str:
    try:
        run_child(__name__, [str(path)])
    except ModelFileError as error:
        return str(error)
    return ""


def _logits(runtime: type[LlamaCpp], path: Path) -> np.ndarray:
    """Float64 (tokens, vocabulary), centred."""
    from ..base import RuntimeOptions, Work
    from ..tree import TokenTree

    loaded = runtime.load(path, RuntimeOptions(ctx=256, batch=64, gpu_layers=0))
    # the beginning and the end of the vocabulary are often tokens that no text holds
    tokens = np.linspace(0, loaded.vocabulary.size - 1, _TOKENS + 2).astype(int)[1:-1]
    (scores,) = loaded.forward([Work(loaded.open(), TokenTree.chain([int(token) for token in tokens]))])
    logits: np.ndarray = scores.logits.astype(np.float64)
    loaded.close()
    logits -= logits.mean(-1, keepdims=True)
    return logits


def _compare(path: Path) -> None:
    """Raises ModelFileError where the kernels say something else."""
    from ..llamacpp import LlamaCpp, LlamaCppStock
    from ..trial import limit_trial

    class Untried(LlamaCpp):
        @classmethod
        def kernels_for(cls, header: GGUFHeader) -> Kernels:
            return kernels()

    limit_trial(path, loads=2)
    theirs, ours = _logits(LlamaCppStock, path), _logits(Untried, path)
    apart = np.linalg.norm(ours - theirs, axis=-1) / np.maximum(np.linalg.norm(theirs, axis=-1), 1e-12)
    if not apart.mean() <= _ROUNDING:  # NaN, too
        raise ModelFileError(f"its logits are off by {apart.mean():.0%}")


def _work(report: Report) -> None:
    _compare(Path(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(work_as_child(_work))
