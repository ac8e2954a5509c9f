"""SHA-256 of large files, computed once per state of a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from .cache import recall, remember


def sha256_of(path: Path) -> str:
    """The file's SHA-256 in hex, remembered by its resolved path, size, time of change and inode."""
    stat = path.stat()
    state = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ino}"
    key = hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest()
    known = recall("digests", key)
    if isinstance(known, str) and len(known) == 64:
        return known
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    remember("digests", key, digest)
    return digest
