"""Whether the kernels fit a model: its logits with them are held against llama.cpp's own once, in a child process.

Models may use their weights in ways that the kernels weren't written for, and a llama.cpp may be one that they weren't
tried with. What crashes there, or says something else, runs on llama.cpp's own code.

Run as `python -m edgespec.runtimes.kernels.trial FILE`, it is that child: exit code 0 where they fit.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np

from edgespec.models.cache import recall, remember
from edgespec.models.gguf import GGUFHeader
from edgespec.models.limits import limit_memory, limit_time

_TOKENS = 8
_ROUNDING = 0.3
"""Largest |difference| / |logits|, in the mean over positions, that may be rounding: inputs of 8 bits make several per
cent, and a matrix in the wrong place more than 1."""
_SECONDS = 60
_BYTES_PER_SECOND = 25 << 20
"""Of a slow disk from which the file is read twice."""


def fit(header: GGUFHeader, identity: str) -> bool:
    """Whether a checked model may run on the kernels of this identity. Tried once and remembered."""
    from ..llama_library import version

    key = hashlib.sha256(f"{header.digest}|{version()}|{identity}".encode()).hexdigest()[:32]
    known = recall("kernels", key)
    if known not in ("fit", "unfit"):
        known = "fit" if _tried(header) else "unfit"
        remember("kernels", key, known)
    return bool(known == "fit")


def _tried(header: GGUFHeader) -> bool:
    command = [sys.executable, "-P", "-m", __name__, str(header.path)]
    seconds = _SECONDS + header.file_size / _BYTES_PER_SECOND
    try:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return False
    return result.returncode == 0


def _logits(path: Path, ours: bool) -> np.ndarray:
    """Float64 (tokens, vocabulary), centred."""
    from ..base import RuntimeOptions, Work
    from ..llamacpp import LlamaCpp, LlamaCppStock
    from ..tree import TokenTree

    class Unproven(LlamaCpp):
        proven = True

    runtime = (Unproven if ours else LlamaCppStock).load(path, RuntimeOptions(ctx=256, batch=64, gpu_layers=0))
    # the beginning and the end of the vocabulary are often tokens that no text holds
    tokens = np.linspace(0, runtime.vocabulary.size - 1, _TOKENS + 2).astype(int)[1:-1]
    (scores,) = runtime.forward([Work(runtime.open(), TokenTree.chain([int(token) for token in tokens]))])
    logits: np.ndarray = scores.logits.astype(np.float64)
    runtime.close()
    logits -= logits.mean(-1, keepdims=True)
    return logits


def main() -> int:
    """The child's entry."""
    path = Path(sys.argv[1])
    size = path.stat().st_size
    limit_memory(3 * size + (16 << 30))
    limit_time(_SECONDS + size / _BYTES_PER_SECOND)
    theirs, ours = _logits(path, ours=False), _logits(path, ours=True)
    apart = np.linalg.norm(ours - theirs, axis=-1) / np.maximum(np.linalg.norm(theirs, axis=-1), 1e-12)
    return int(not apart.mean() <= _ROUNDING)  # NaN is none, too


if __name__ == "__main__":
    sys.exit(main())
