"""The folder in which a conversion works: what is finished in it survives a kill, what isn't is done again."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from edgespec.models.errors import ModelFileError

_STATE = "edgespec-state.json"
_OURS = ("lock", _STATE)


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

    folder = out.absolute().parent / f".{out.name}.work"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _require_ours(folder)
        lock = FileLock(folder / "lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise ModelFileError(
            f"{out}: another process is converting to it; wait for it or choose another name"
        ) from None
    except OSError as error:
        raise ModelFileError(f"{out}: can't be made: {error.strerror or error}; name another place with -o") from None
    try:
        _begin(folder, fingerprint)
        yield folder
    except Exception:  # but not an interrupt
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        lock.release()
    shutil.rmtree(folder, ignore_errors=True)


def _require_ours(folder: Path) -> None:
    """Raises `ModelFileError` unless it is new, or of an earlier conversion: what is in it will be deleted."""
    strange = [path.name for path in folder.iterdir() if path.name not in _OURS]
    if folder.is_symlink() or (strange and not (folder / _STATE).is_file()):
        raise ModelFileError(f"{folder}: is in the way, and isn't a conversion's work folder; remove or rename it")


def _begin(folder: Path, fingerprint: str) -> None:
    state = folder / _STATE
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
