"""The user's cache folder, and small JSON facts kept there.

Everything in it can be deleted at any time; it is measured, downloaded or checked again.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

import platformdirs

_Fact = TypeVar("_Fact")
_LEFTOVER_SECONDS = 24 * 3600


def cache_folder() -> Path:
    """Where models and measurements are kept: `EDGESPEC_CACHE`, or the system's folder for caches."""
    return Path(os.environ.get("EDGESPEC_CACHE") or platformdirs.user_cache_dir("edgespec", appauthor=False))


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write `path` whole or not at all: into a file beside it, renamed when the block ends without an error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(path)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    except OSError as error:
        raise _of(path, error) from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError) and error.filename in (None, name):
            raise _of(path, error) from None
        raise


def _of(path: Path, error: OSError) -> OSError:
    """The error, of the file that is meant instead of the one beside it."""
    return type(error)(error.errno, error.strerror or str(error), str(path))


def _remove_leftovers(path: Path) -> None:
    """Delete what earlier processes left half-written when they were killed."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > _LEFTOVER_SECONDS:
                part.unlink()


def recall(kind: str, key: str) -> Any:
    """A fact stored by `remember`, or None. A damaged or unreadable file counts as forgotten."""
    path = cache_folder() / kind / f"{key}.json"
    try:
        return json.loads(path.read_text("utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None


def remember(kind: str, key: str, value: Any) -> None:
    """Store a fact. A full or read-only disk costs the memory of it, never the work in hand."""
    with contextlib.suppress(OSError), replacing(cache_folder() / kind / f"{key}.json") as file:
        file.write(json.dumps(value).encode())


def remembered(kind: str, state: str, restore: Callable[[Any], _Fact], measure: Callable[[], Any]) -> _Fact:
    """What `measure` found for this state of model and machine: once, then from the cache.

    Args:
        restore: makes of the stored value what is returned; a stored value that it refuses is measured again.
    """
    key = hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    known = recall(kind, key)
    if known is not None:
        with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError, OverflowError):
            return restore(known)
    value = measure()
    remember(kind, key, value)
    return restore(value)
