"""What a caller may ask of one generation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from edgespec.models.errors import UsageError

from .sampling import SamplingOptions


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """Options of one answer. `GenerationOptions.of` takes these and those of `SamplingOptions` by name.

    Attributes:
        max_tokens: at most so many; None: until the model ends its answer or the context is full.
        sampling: how tokens are chosen.
        stop: strings that end the answer; not part of it.
        prediction: text that the answer will resemble; used as a draft, never changes what is said.
        deadline_s: seconds from the call after which the answer ends where it is.
        cancel: set from anywhere (another thread too), it ends the answer where it is.
        on_prefill: called with the prompt's prefilled and total tokens.
    """

    max_tokens: int | None = None
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    stop: tuple[str, ...] = ()
    prediction: str = ""
    deadline_s: float | None = None
    cancel: threading.Event | None = None
    on_prefill: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 0:
            raise UsageError(f"max_tokens is {self.max_tokens}; it must be 0 or more")
        if self.deadline_s is not None and not self.deadline_s >= 0:
            raise UsageError(f"deadline_s is {self.deadline_s}; it must be 0 or more")

    @classmethod
    def of(cls, **options: Any) -> GenerationOptions:
        """From one flat set of names, as the library's calls take them.

        Raises:
            UsageError: a name that neither this class nor `SamplingOptions` has, or a value out of range.
        """
        own = {name: options.pop(name) for name in cls.__slots__ if name in options and name != "sampling"}
        unknown = options.keys() - set(SamplingOptions.__slots__)
        if unknown:
            raise UsageError(f"unknown option {sorted(unknown)[0]!r}")
        if isinstance(own.get("stop"), str):
            raise UsageError("stop is one string; a list of strings is needed")
        own["stop"] = tuple(own.get("stop") or ())
        return cls(sampling=SamplingOptions(**options), **own)
