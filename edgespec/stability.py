"""How many tokens one pass can take and still give, to the last bit, what passes over single tokens give.

Backends choose kernels by the number of tokens, and different kernels round differently. Where two tokens are nearly
tied, that alone can turn a greedy answer. Drafts within the stable size can't.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgespec.models.cache import remembered
from edgespec.runtimes.base import Runtime, Work
from edgespec.runtimes.tree import TokenTree

_MOST = 17
_CONTEXTS = (64, 576)
"""Cached tokens at which it is measured: some kernels depend on the context's length too."""


def stable_size(runtime: Runtime) -> int:
    """The largest n up to 17 for which passes over 1 to n tokens agree bit by bit.

    Measured, and remembered for the same model, device, threads and backend.
    """
    return remembered(
        "stability", runtime.identity, _restored, lambda: min(_measure(runtime, context) for context in _CONTEXTS)
    )


def _restored(size: Any) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= _MOST:
        raise ValueError("not a size")
    return int(size)


def _measure(runtime: Runtime, context: int) -> int:
    most = max(1, min(_MOST, runtime.options.draft_tokens + 1, runtime.context_length // 2))
    context = min(context, runtime.context_length - most)
    # ordinary tokens, spread over the vocabulary
    tokens = [int(t) for t in np.linspace(0, runtime.vocabulary.size - 1, context + most)]
    sequence = runtime.open()
    try:
        runtime.prefill(sequence, tokens[:context])
        singles: list[np.ndarray] = []
        for size in range(1, most + 1):
            runtime.truncate(sequence, context + size - 1)
            (scores,) = runtime.forward([Work(sequence, TokenTree.chain([tokens[context + size - 1]]))])
            singles.append(scores.logits[0].copy())
            runtime.commit(sequence, [0])
            runtime.truncate(sequence, context)
            (scores,) = runtime.forward([Work(sequence, TokenTree.chain(tokens[context : context + size]))])
            if not np.array_equal(scores.logits, np.array(singles)):
                return size - 1
            # stable so far: what this pass put into the cache is what single passes would have
            runtime.commit(sequence, list(range(size)))
        return most
    finally:
        runtime.release(sequence)
