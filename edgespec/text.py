"""From tokens to text that is never taken back: whole characters only, and nothing of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence


class TextStream:
    """Decodes an answer token by token.

    Args:
        piece: the bytes of a token.
        stops: strings that end the answer and are not part of it.
    """

    def __init__(self, piece: Callable[[int], bytes], stops: Sequence[str] = ()) -> None:
        self._piece, self._stops = piece, [stop for stop in stops if stop]
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.stopped = False
        """Whether a stop string was met; what follows it is dropped."""

    def feed(self, token: int) -> str:
        """The text that is certain after this token; what may become a stop string is held back."""
        return self._release(self._decoder.decode(self._piece(token)))

    def flush(self) -> str:
        """The rest, at the end of an answer. Half a character at its end becomes U+FFFD."""
        text = self._release(self._decoder.decode(b"", final=True)) + ("" if self.stopped else self._held)
        self._held = ""
        return text

    def _release(self, text: str) -> str:
        if self.stopped:
            return ""
        self._held += text
        found = [at for at in map(self._held.find, self._stops) if at >= 0]
        if found:
            self.stopped = True
            return self._cut(min(found))
        return self._cut(len(self._held) - self._undecided())

    def _cut(self, end: int) -> str:
        text, self._held = self._held[:end], self._held[end:]
        return text

    def _undecided(self) -> int:
        """Length of the longest end of the held text that a stop string begins with."""
        longest = 0
        for stop in self._stops:
            for length in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if self._held.endswith(stop[:length]):
                    longest = length
                    break
        return longest
