"""What a caller may ask of one generation."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from edgespec.models.checks import check_kind, check_text, number, shown, whole
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
        if self.max_tokens is not None:
            object.__setattr__(self, "max_tokens", whole("max_tokens", self.max_tokens))
        if self.deadline_s is not None and not (isinstance(self.deadline_s, float) and self.deadline_s == math.inf):
            object.__setattr__(self, "deadline_s", number("deadline_s", self.deadline_s, 0))
        for stop in self.stop:
            check_text("stop", stop)
        check_text("prediction", self.prediction)
        check_kind("cancel", self.cancel, threading.Event, None)
        if self.on_prefill is not None and not callable(self.on_prefill):
            raise UsageError(f"on_prefill is {shown(self.on_prefill)}; a function of two numbers is needed")

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
        stop = own.get("stop")
        if isinstance(stop, (str, bytes)) or not (stop is None or isinstance(stop, Iterable)):
            raise UsageError(f"stop is {shown(stop)}; a list of strings is needed")
        own["stop"] = tuple(stop or ())
        return cls(sampling=SamplingOptions(**options), **own)
