"""What a generation yields, and the answer collected from it. Everything is frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

FinishReason = Literal["stop", "length", "cancelled", "deadline"]


@dataclass(frozen=True, slots=True)
class Stats:
    """What an answer took. Names and units as in the JSON output; rates are over the whole answer after the prompt.

    Attributes:
        prompt_tokens: of the whole prompt.
        cached_tokens: of the prompt, found in the cache from before.
        drafted_tokens: proposed by drafters and verified by the target.
        accepted_tokens: of those, the ones that became part of the answer.
        drafted_by_depth: passes whose draft reached this depth, from 1 on.
        accepted_by_depth: of those, the passes in which the draft was accepted down to there.
        plain_pass_s: median seconds of this answer's passes without a draft; 0 where there was none.
        tokens_per_second: completion tokens over the time from the end of the prompt's prefill to the last token.
        peak_memory_bytes: of this process since it began.
    """

    strategy: str
    runtime: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    target_passes: int
    drafted_tokens: int
    accepted_tokens: int
    tokens_per_second: float
    time_to_first_token_s: float
    peak_memory_bytes: int
    drafted_by_depth: tuple[int, ...] = ()
    accepted_by_depth: tuple[int, ...] = ()
    plain_pass_s: float = 0.0

    @property
    def acceptance(self) -> float:
        """Accepted over drafted tokens; 0 where nothing was drafted."""
        return self.accepted_tokens / self.drafted_tokens if self.drafted_tokens else 0.0

    @property
    def tokens_per_pass(self) -> float:
        return self.completion_tokens / self.target_passes if self.target_passes else 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Stats:
        """What `to_json` gave, back from JSON."""
        known: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**known)


@dataclass(frozen=True, slots=True)
class Event:
    """A piece of an answer, or its end.

    Attributes:
        text: new text; whole characters only, never taken back.
        tokens: the tokens that became certain with it, none or several.
        drafted: whether a draft had proposed the token that completed the text.
        finish_reason: set on the last event alone.
        stats: set on the last event alone.
    """

    text: str
    tokens: tuple[int, ...] = ()
    drafted: bool = False
    finish_reason: FinishReason | None = None
    stats: Stats | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    stats: Stats

    def to_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "tokens": list(self.tokens),
            "finish_reason": self.finish_reason,
            "stats": self.stats.to_json(),
        }
