"""What runs a model. A backend is one file here and one line in `RUNTIMES`."""

from __future__ import annotations

from importlib import import_module

from .base import Runtime, RuntimeOptions, Scores, Sequence, Vocabulary, Work
from .tree import TokenTree

RUNTIMES = {
    "llamacpp": "edgespec.runtimes.llamacpp:LlamaCpp",
    "llamacpp-stock": "edgespec.runtimes.llamacpp:LlamaCppStock",
}
"""Name on the command line -> module and class."""


def runtime_class(name: str) -> type[Runtime]:
    """The class behind a name of `RUNTIMES`; imports its backend."""
    module, _, attribute = RUNTIMES[name].partition(":")
    found: type[Runtime] = getattr(import_module(module), attribute)
    return found


__all__ = [
    "RUNTIMES",
    "Runtime",
    "RuntimeOptions",
    "Scores",
    "Sequence",
    "TokenTree",
    "Vocabulary",
    "Work",
    "runtime_class",
]
