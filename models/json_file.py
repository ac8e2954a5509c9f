"""Small JSON files that others wrote: read whole, after a look at what they are and how large."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .errors import EdgespecError, ModelFileError


def read_json(path: Path, most: int, advice: str, error: type[EdgespecError] = ModelFileError) -> Any:
    """The content of a JSON file.

    Args:
        most: bytes that such a file never exceeds.
        advice: what to do about a damaged file; ends the message.
        error: what is raised.

    Raises:
        FileNotFoundError: there is none.
        EdgespecError: of the kind asked for: not a regular file, too large, unreadable, not JSON.
    """
    try:
        size = path.stat().st_size
        if not path.is_file():  # a named pipe would wait for ever, a device never end
            raise error(f"{path}: isn't a regular file; {advice}")
        if size > most:
            raise error(f"{path}: larger than {most >> 20} MiB; {advice}")
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise error(f"{path}: can't be read: {problem.strerror or problem}") from None
    except (ValueError, RecursionError) as problem:
        if isinstance(problem, EdgespecError):  # a UsageError is a ValueError
            raise
        found = str(problem) if isinstance(problem, json.JSONDecodeError) else "not UTF-8 JSON text"
        raise error(f"{path}: isn't valid JSON ({found}); {advice}") from None
