"""A runtime with queued logits: says what the next token is by a function of the tokens before it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgespec.models.errors import ContextFull
from edgespec.runtimes import RuntimeOptions, Scores, TokenTree, Work

SIZE = 64
END = 0
Script = Callable[[list[int]], np.ndarray]


def says(answer: list[int], prompt: list[int]) -> Script:
    """Logits by which the greedy answer to `prompt` is `answer`, and the end afterwards."""

    def logits(tokens: list[int]) -> np.ndarray:
        index = len(tokens) - len(prompt)
        row = np.zeros(SIZE, np.float32)
        row[answer[index] if 0 <= index < len(answer) else END] = 10.0
        return row

    return logits


class ScriptedVocabulary:
    """Token n is the n-th of some characters; 0 ends an answer."""

    size, bos, adds_bos, fingerprint, longest = SIZE, None, False, "scripted", 4
    end_tokens = frozenset([END])

    def text(self, token: int) -> str:
        return self.piece(token).decode()

    def encode(self, text: str, *, special: bool, add_bos: bool) -> list[int]:
        return [ord(c) - 63 for c in text]

    def piece(self, token: int, *, special: bool = False) -> bytes:
        return b"" if token == END else chr(token + 63).encode()


class ScriptedSequence:
    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.tree: TokenTree | None = None

    @property
    def length(self) -> int:
        return len(self.tokens)


class ScriptedRuntime:
    """Implements `Runtime`, and counts its passes."""

    name, can_rewind, identity = "scripted", True, "scripted"

    def __init__(self, script: Script, ctx: int = 256, fail_at: int | None = None) -> None:
        self.options = RuntimeOptions(ctx=ctx)
        self.notice = ""
        self.vocabulary = ScriptedVocabulary()
        self.context_length = ctx
        self.passes: list[int] = []
        self.closed = False
        self._script, self._fail_at = script, fail_at

    @classmethod
    def load(cls, path: Path, options: RuntimeOptions, progress: Any = None) -> ScriptedRuntime:
        raise NotImplementedError

    def open(self) -> ScriptedSequence:
        return ScriptedSequence()

    def release(self, sequence: ScriptedSequence) -> None:
        sequence.tokens.clear()

    def prefill(self, sequence: ScriptedSequence, tokens: list[int], stop: Callable[[], bool] | None = None) -> int:
        for done, token in enumerate(tokens):
            if stop is not None and stop():
                return done
            sequence.tokens.append(token)
        return len(tokens)

    def forward(self, work: list[Work]) -> list[Scores]:
        if self._fail_at == len(self.passes):
            self._fail_at = None
            raise KeyboardInterrupt
        self.passes.append(sum(len(item.tree) for item in work))
        return [self._scores(*item) for item in work]

    def _scores(self, sequence: ScriptedSequence, tree: TokenTree, rows: Any, hidden: bool) -> Scores:
        if sequence.length + len(tree) > self.context_length:
            raise ContextFull("full")
        start = len(sequence.tree) if sequence.tree is not None else 0
        sequence.tree = tree
        wanted = range(start, len(tree)) if rows is None else rows
        paths = [[tree.tokens[n] for n in tree.path(node)] for node in wanted]
        logits = [self._script(sequence.tokens + path) for path in paths]
        return Scores(np.array(logits, np.float32).reshape(len(logits), SIZE), None)

    def commit(self, sequence: ScriptedSequence, path: list[int]) -> None:
        assert sequence.tree is not None
        assert sequence.tree.path(path[-1]) == path
        sequence.tokens += [sequence.tree.tokens[n] for n in path]
        sequence.tree = None

    def truncate(self, sequence: ScriptedSequence, length: int) -> None:
        assert 0 <= length <= sequence.length
        del sequence.tokens[length:]
        sequence.tree = None

    def close(self) -> None:
        self.closed = True


class ScriptedDrafter:
    """Proposes what it is told to, as a chain or as a tree."""

    name = "scripted"

    def __init__(self, propose: Callable[[list[int], int], Any]) -> None:
        self._propose = propose
        self.outcomes: list[Any] = []

    def prospect(self, context: Any) -> Any:
        from edgespec.drafters.base import Prospect

        return Prospect(0, 16, 0.5)

    def draft(self, context: Any, budget: int) -> Any:
        return self._propose(context.tokens, budget)

    def observe(self, outcome: Any) -> None:
        self.outcomes.append(outcome)

    def close(self) -> None:
        pass
