"""An online suffix automaton over tokens (Blumer et al. 1985): every substring of a text as a path from its root."""

from __future__ import annotations

from collections.abc import Iterable

ROOT = 0


class SuffixAutomaton:
    """Holds a growing text. A state stands for substrings that end at the same places."""

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self.text: list[int] = []
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._end = [-1]
        self._last = ROOT
        for token in tokens:
            self.append(token)

    def append(self, token: int) -> None:
        """Add a token to the text; amortised constant time."""
        state, above = self._new_state({}, self._length[self._last] + 1, len(self.text)), self._last
        self.text.append(token)
        while above != -1 and token not in self._next[above]:
            self._next[above][token] = state
            above = self._link[above]
        self._link[state] = ROOT if above == -1 else self._split(above, token)
        self._last = state

    def _new_state(self, transitions: dict[int, int], length: int, end: int) -> int:
        self._next.append(transitions)
        self._link.append(ROOT)
        self._length.append(length)
        self._end.append(end)
        return len(self._link) - 1

    def _split(self, above: int, token: int) -> int:
        """The state for exactly the longest string of `above` and `token`, cut out of a larger state if need be."""
        below = self._next[above][token]
        if self._length[below] == self._length[above] + 1:
            return below
        clone = self._new_state(dict(self._next[below]), self._length[above] + 1, self._end[below])
        self._link[clone] = self._link[below]
        self._link[below] = clone
        while above != -1 and self._next[above].get(token) == below:
            self._next[above][token] = clone
            above = self._link[above]
        return clone


class Match:
    """The longest suffix of a stream of tokens that occurs in an automaton's text; constant time for each token."""

    def __init__(self, automaton: SuffixAutomaton) -> None:
        self._automaton = automaton
        self._state = ROOT
        self.length = 0
        """Tokens of the suffix that was found."""
        self.position = 0
        """Where the text goes on after the occurrence that was found."""

    def advance(self, token: int) -> None:
        """Take the stream's next token."""
        automaton, state, length = self._automaton, self._settled(), self.length
        while state != ROOT and token not in automaton._next[state]:
            state = automaton._link[state]
            length = automaton._length[state]
        below = automaton._next[state].get(token)
        self._state, self.length = (ROOT, 0) if below is None else (below, length + 1)
        self.position = automaton._end[self._state] + 1

    def note_occurrence(self, end: int) -> None:
        """Remember that the match ends at `end` of the text too: the next one goes on from the latest occurrence."""
        self._state = self._settled()
        if self._state != ROOT:
            self._automaton._end[self._state] = end

    def _settled(self) -> int:
        """The match's state now; an append may have split it, and the first one that is short enough is right."""
        automaton, state = self._automaton, self._state
        while state != ROOT and self.length <= automaton._length[automaton._link[state]]:
            state = automaton._link[state]
        return state
