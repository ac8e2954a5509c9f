"""The errors that people meet. Each message names the file or option, what is wrong, and what to do.

They live in the lowest room so that every other room can raise them; the command line turns them into
one line on standard error and an exit code (2 for `UsageError`, 1 for the rest).
"""

from __future__ import annotations


class EdgespecError(Exception):
    """Base of all errors that edgespec raises on purpose."""


class UsageError(EdgespecError, ValueError):
    """An option or argument can't be right, whatever the files hold."""


class ModelFileError(EdgespecError):
    """A model file or pack is missing, damaged, or not one that can be run."""


class VocabularyMismatch(EdgespecError):  # noqa: N818 - named for what it says
    """A draft speaks another vocabulary than its target."""


class ContextFull(EdgespecError):  # noqa: N818 - named for what it says
    """The tokens don't fit into the context that was opened."""


class RuntimeFailure(EdgespecError):  # noqa: N818 - `RuntimeError` is Python's own
    """The library that runs the model reported a failure."""


def reason(error: object, most: int = 200) -> str:
    """What somebody else's error says, on one line; its kind where it says nothing."""
    return " ".join(str(error)[: 4 * most].split())[:most] or type(error).__name__
