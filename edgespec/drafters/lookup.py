"""Prompt lookup: what followed the same words before is likely to follow them again.

Finds the longest suffix of the text so far in the text before it (prompt and answer) and in the text that the caller
predicts. The draft is what came next there. See SAM-Decoding (2411.10666) for the automaton.
"""

from __future__ import annotations

from .base import Context, Draft, Outcome, Prospect
from .suffix_automaton import Match, SuffixAutomaton

MIN_MATCH = 2
_GROUP_STARTS = (2, 3, 4, 6, 9, 16)
_GROUP_PRIORS = (0.15, 0.3, 0.45, 0.65, 0.8, 0.9)
_MOST = 64
_AT_START = 9
"""Match length that the first words of a predicted answer count as: nothing contradicts them yet."""


class Lookup:
    """Implements `Drafter`. Its drafts cost next to nothing, and are chosen, not drawn."""

    name = "lookup"

    def __init__(self) -> None:
        self._context: Context | None = None

    def prospect(self, context: Context) -> Prospect | None:
        self._catch_up(context)
        length, continuation = self._best(context)
        if length < MIN_MATCH or not continuation:
            return None
        group = max(i for i, start in enumerate(_GROUP_STARTS) if length >= start)
        return Prospect(group, min(len(continuation), 2 * length), _GROUP_PRIORS[group])

    def draft(self, context: Context, budget: int) -> Draft:
        self._catch_up(context)
        length, continuation = self._best(context)
        return Draft.chosen(continuation[:budget] if length >= MIN_MATCH else [])

    def observe(self, outcome: Outcome) -> None:
        """Nothing to learn: the next draft follows from the text."""

    def close(self) -> None:
        self._context = None

    def _catch_up(self, context: Context) -> None:
        if self._context is not context:
            self._context = context
            self._automaton = SuffixAutomaton()
            self._match = Match(self._automaton)
            self._predicted = SuffixAutomaton(context.prediction)
            self._predicted_match = Match(self._predicted)
        for index in range(len(self._automaton.text), len(context.tokens)):
            token = context.tokens[index]
            self._match.advance(token)  # before the token joins the text, so that only earlier text is found
            self._automaton.append(token)
            self._match.note_occurrence(index)
            if index >= context.prompt_length:
                self._predicted_match.advance(token)

    def _best(self, context: Context) -> tuple[int, list[int]]:
        """Length of the longest match and up to `_MOST` tokens that follow it."""
        if self._predicted.text:
            at_start = len(context.tokens) == context.prompt_length
            length = _AT_START if at_start else self._predicted_match.length
            if length >= self._match.length:
                position = self._predicted_match.position
                following = self._predicted.text[position : position + _MOST]
                if following:
                    return length, following
        return self._match.length, self._repeated(self._match.position)

    def _repeated(self, position: int) -> list[int]:
        """The text from `position` on; where it ends, the part since `position` once more, as a loop would go on."""
        following = self._automaton.text[position : position + _MOST]
        while following and len(following) < _MOST:
            following += following[: _MOST - len(following)]
        return following
