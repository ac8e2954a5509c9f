"""The user's cache folder, and small JSON facts kept there.

Everything in it can be deleted at any time; it is measured, downloaded or checked again.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import platformdirs


def cache_folder() -> Path:
    """Where models and measurements are kept: `EDGESPEC_CACHE`, or the system's folder for caches."""
    return Path(os.environ.get("EDGESPEC_CACHE") or platformdirs.user_cache_dir("edgespec", appauthor=False))


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write `path` whole or not at all: into a file beside it, renamed when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def recall(kind: str, key: str) -> Any:
    """A fact stored by `remember`, or None. A damaged or unreadable file counts as forgotten."""
    try:
        return json.loads((cache_folder() / kind / f"{key}.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def remember(kind: str, key: str, value: Any) -> None:
    """Store a fact. A full or read-only disk costs the memory of it, never the work in hand."""
    with contextlib.suppress(OSError), replacing(cache_folder() / kind / f"{key}.json") as file:
        file.write(json.dumps(value).encode())
