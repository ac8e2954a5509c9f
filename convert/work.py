"""The folder in which a conversion works: what is finished in it survives a kill, what isn't is done again."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from edgespec.models.errors import EdgespecError, ModelFileError


@contextlib.contextmanager
def work_folder(out: Path, fingerprint: str) -> Iterator[Path]:
    """A folder beside `out`, with what an earlier, interrupted run of the same conversion finished.

    It is removed at the end, and after a failure; after an interrupt or a kill it stays for the next run.

    Args:
        fingerprint: names sources, options and versions; of a run with another one nothing is kept.

    Raises:
        ModelFileError: the place can't be written, or another process converts to it right now.
    """
    from filelock import FileLock, Timeout

    folder = out.parent / f".{out.name}.work"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock", timeout=0)
        with lock:
            _begin(folder, fingerprint)
            try:
                yield folder
            except (EdgespecError, OSError):
                shutil.rmtree(folder, ignore_errors=True)
                raise
            shutil.rmtree(folder, ignore_errors=True)
    except Timeout:
        raise ModelFileError(
            f"{out}: another process is converting to it; wait for it or choose another name"
        ) from None


def _begin(folder: Path, fingerprint: str) -> None:
    state = folder / "state.json"
    try:
        known = json.loads(state.read_text("utf-8"))
    except (OSError, ValueError):
        known = None
    if known != fingerprint:
        for path in folder.iterdir():
            if path.name == "lock":
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    for part in folder.rglob("*.part"):
        part.unlink()
    state.write_text(json.dumps(fingerprint), "utf-8")


def finished(path: Path, make: Callable[[Path], None]) -> Path:
    """The file, made by `make` under another name and renamed when it is whole; one that is there is taken as it is."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        make(part)
        os.replace(part, path)
    return path
