"""A first trial of a model file in a child process, since llama.cpp can abort the whole process on a bad one.

The child loads the file, tokenizes text that holds every byte, and decodes once. Its death or silence becomes a
one-line error here. A file that passed is remembered by the digest of its header, which decides how llama.cpp walks
through it, and by its time of change: hashing gigabytes of weights at each start would take longer than loading them.

Run as `python -m edgespec.runtimes.trial FILE`, it is that child.
"""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from pathlib import Path

from edgespec.models.cache import recall, remember
from edgespec.models.errors import EdgespecError, ModelFileError, reason
from edgespec.models.gguf import GGUFHeader
from edgespec.models.limits import limit_memory, limit_time

_BASE_SECONDS = 60
_BYTES_PER_SECOND = 50 << 20
"""A slow disk. A trial that takes longer than reading the file from it, and a minute, hangs."""
_TIME_UP = {-signal.SIGALRM, 128 + signal.SIGALRM} if hasattr(signal, "SIGALRM") else set()


def ensure_tried(header: GGUFHeader) -> None:
    """Try a checked file in a child process unless the same one passed before.

    Raises:
        ModelFileError: it failed, crashed the child, or hung.
    """
    from .llama_library import version

    changed = header.path.stat().st_mtime_ns
    key = hashlib.sha256(f"{header.digest}|{changed}|{version()}".encode()).hexdigest()[:32]
    if recall("trials", key) == "passed":
        return
    command = [sys.executable, "-P", "-m", __name__, str(header.path)]
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_time_limit(header.file_size),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _hang(header) from None
    if result.returncode == 1:
        lines = result.stderr.strip().splitlines()
        raise ModelFileError(lines[-1] if lines else f"{header.path}: llama.cpp can't run it")
    if result.returncode in _TIME_UP:
        raise _hang(header)
    if result.returncode:
        raise ModelFileError(
            f"{header.path}: llama.cpp crashes on it ({_last_words(result.stderr, result.returncode)}); "
            "the file is damaged or not for this version"
        )
    remember("trials", key, "passed")


def limit_trial(path: Path, loads: int = 1) -> None:
    """What a child that loads this file so many times, one after the other, may take of memory and time."""
    size = path.stat().st_size
    # weights may be there twice; the rest is for libraries, threads' stacks and buffers, reserved more than used
    limit_memory(3 * size + (16 << 30))
    limit_time(loads * _time_limit(size))  # also for a child whose parent was killed


def _time_limit(file_size: int) -> float:
    return _BASE_SECONDS + file_size / _BYTES_PER_SECOND


def _hang(header: GGUFHeader) -> ModelFileError:
    return ModelFileError(f"{header.path}: llama.cpp hangs on it; the file is damaged or not for this version")


def _last_words(stderr: str, code: int) -> str:
    """The most telling line of a crash: the exception or assertion, not the backtrace."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    telling = [line for line in lines if any(word in line for word in ("what():", "GGML_ASSERT", "error", "Error"))]
    return (telling or [f"signal {-code}" if code < 0 else f"exit code {code}"])[0][:160]


def _trial(path: Path) -> None:
    """Everything that a run will do first, once."""
    import dataclasses

    from .base import RuntimeOptions, Work
    from .llamacpp import LlamaCpp
    from .tree import TokenTree

    options = dataclasses.replace(RuntimeOptions(), ctx=256, batch=64, gpu_layers=0, repack=False)
    runtime = LlamaCpp.load(path, options)
    vocabulary = runtime.vocabulary
    # every byte that UTF-8 can hold, in and out of control tokens' neighbourhood
    points = [*range(1, 0x180), *range(0x180, 0xD800, 251), *range(0xE000, 0x110000, 4099)]
    every_character = "".join(map(chr, points)) + " <|end|> </s> [INST]"
    for special in (False, True):
        tokens = vocabulary.encode(f"Hello, world! {every_character}", special=special, add_bos=True)
    if not tokens:
        raise ModelFileError(f"{path}: its tokenizer makes nothing of any text; the vocabulary is damaged")
    for token in [*range(min(256, vocabulary.size)), *tokens, *vocabulary.end_tokens]:
        vocabulary.piece(token)
    sequence = runtime.open()
    (scores,) = runtime.forward([Work(sequence, TokenTree.chain([tokens[0], tokens[-1]]))])
    if not (abs(scores.logits) < float("inf")).all():
        raise ModelFileError(f"{path}: its logits aren't finite; the weights are damaged")
    runtime.close()


def main() -> int:
    """The child's entry."""
    path = Path(sys.argv[1])
    limit_trial(path)
    try:
        _trial(path)
    except EdgespecError as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:  # whatever a strange file leads our own code or ctypes to
        print(f"{path}: the trial of it failed: {type(error).__name__}: {reason(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
