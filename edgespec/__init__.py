"""Exact speculative decoding for local language models.

import edgespec
model = edgespec.load("model.gguf")
for event in model.generate("Why is the sky blue?", max_tokens=128):
    print(event.text, end="")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .asynchronous import stream
    from .conversation import Conversation
    from .events import Answer, Event
    from .loading import load
    from .model import Model
    from .models.errors import (
        ContextFull,
        EdgespecError,
        ModelFileError,
        RuntimeFailure,
        UsageError,
        VocabularyMismatch,
    )
    from .options import GenerationOptions

__version__ = "0.1.0"

_HOMES = {
    "load": ".loading", "Model": ".model", "Conversation": ".conversation", "stream": ".asynchronous",
    "GenerationOptions": ".options", "Answer": ".events", "Event": ".events",
    "EdgespecError": ".models.errors", "UsageError": ".models.errors", "ModelFileError": ".models.errors",
    "VocabularyMismatch": ".models.errors", "ContextFull": ".models.errors", "RuntimeFailure": ".models.errors",
}  # fmt: skip

__all__ = [
    "Answer", "ContextFull", "Conversation", "EdgespecError", "Event", "GenerationOptions", "Model", "ModelFileError",
    "RuntimeFailure", "UsageError", "VocabularyMismatch", "load", "stream",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # importing edgespec stays quick: numpy and llama.cpp come with the first name that needs them
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
