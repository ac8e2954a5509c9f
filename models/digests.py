"""SHA-256 of large files, computed once per state of a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from .cache import remembered


def sha256_of(path: Path) -> str:
    """The file's SHA-256 in hex, remembered by its resolved path, size, time of change and inode."""
    stat = path.stat()
    state = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ino}"

    def computed() -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return remembered("digests", state, _restored, computed)


def _restored(digest: str) -> str:
    if len(bytes.fromhex(digest)) != 32:
        raise ValueError("not a SHA-256")
    return digest
