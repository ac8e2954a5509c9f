"""How far a converted model agrees with its source: on the same tokens, position by position."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgespec.models.gguf_check import checked_header
from edgespec.runtimes import Runtime, RuntimeOptions, TokenTree, Vocabulary, Work, runtime_class

LENGTH = 640
"""Tokens of the passage that are scored."""
_CHUNK = 32
_LEAST = 64


class Agreement(NamedTuple):
    """How the next-token distributions of two models agree, over all positions.

    Attributes:
        positions: how many were compared.
        same_top: the share of them at which both have the same likeliest token.
        kl: the mean Kullback-Leibler divergence of the converted model from its source, in nats.
        kl_p99: its 99th percentile.
        error: the mean over positions of |difference| / |reference|, Euclidean norms of the centred logits; two models
            that have nothing to do with each other are near 1.4.
        worst_logit: the largest difference of a centred logit.
        worst_share: the same as a share of the reference's range at that position.
    """

    positions: int
    same_top: float
    kl: float
    kl_p99: float
    error: float
    worst_logit: float
    worst_share: float

    def to_json(self) -> dict[str, Any]:
        return {name: value if isinstance(value, int) else round(value, 6) for name, value in self._asdict().items()}


def compare(reference: Iterator[np.ndarray], converted: Iterator[np.ndarray]) -> Agreement:
    """Compare logits, row by row.

    Args:
        reference, converted: rows of float logits (vocabulary,); where one has padding at its end, that is left out.
    """
    rows = [_compare_row(one, other) for one, other in zip(reference, converted, strict=False)]
    same, kl, error, worst, share = (np.array(column, float) for column in zip(*rows, strict=True))
    return Agreement(
        positions=len(rows),
        same_top=float(same.mean()),
        kl=float(kl.mean()),
        kl_p99=float(np.quantile(kl, 0.99)),
        error=float(error.mean()),
        worst_logit=float(worst.max()),
        worst_share=float(share.max()),
    )


def _compare_row(reference: np.ndarray, converted: np.ndarray) -> tuple[bool, float, float, float, float]:
    size = min(len(reference), len(converted))
    p, q = (np.asarray(row[:size], np.float64) for row in (reference, converted))
    p, q = p - p.mean(), q - q.mean()  # a constant in all logits means nothing
    difference = np.abs(p - q)
    log_p, log_q = p - log_sum(p), q - log_sum(q)
    kl = max(0.0, float(np.exp(log_p) @ (log_p - log_q)))
    error = float(np.linalg.norm(difference) / max(float(np.linalg.norm(p)), 1e-12))
    worst = float(difference.max())
    return int(p.argmax()) == int(q.argmax()), kl, error, worst, worst / max(float(np.ptp(p)), 1e-12)


def log_sum(row: np.ndarray) -> float:
    """log(sum(exp(row))) without overflow."""
    top = float(row.max())
    return top + float(np.log(np.exp(row - top).sum()))


def scored(path: Path, tokens: list[int]) -> Iterator[np.ndarray]:
    """A GGUF's logits after each of these tokens, float32 (vocabulary,); the model is closed at the end."""
    # llama.cpp's flash attention on CPUs rounds a thousand times more coarsely than the rest, whatever the cache's type
    options = RuntimeOptions(
        ctx=len(tokens), draft_tokens=_CHUNK - 1, branches=1, repack=False, cache_type="f32", flash_attention=False
    )
    model = runtime_class("llamacpp").load(path, options)
    try:
        yield from logits_after(model, tokens, _CHUNK)
    finally:
        model.close()


def logits_after(runtime: Runtime, tokens: list[int], size: int) -> Iterator[np.ndarray]:
    """Float32 logits (vocabulary,) after each of these tokens, computed in passes of `size` tokens."""
    sequence = runtime.open()
    try:
        for start in range(0, len(tokens), size):
            chunk = tokens[start : start + size]
            (scores,) = runtime.forward([Work(sequence, TokenTree.chain(chunk))])
            yield from scores.logits.copy()
            runtime.commit(sequence, list(range(len(chunk))))
    finally:
        runtime.release(sequence)


def encoded(path: Path, texts: list[str]) -> tuple[list[list[int]], Vocabulary]:
    """Token ids of texts by a GGUF's own tokenizer, without BOS, and its vocabulary."""
    model = runtime_class("llamacpp").load(path, RuntimeOptions(ctx=64, gpu_layers=0, repack=False))
    try:
        return [model.vocabulary.encode(text, special=True, add_bos=False) for text in texts], model.vocabulary
    finally:
        model.close()


def leading_bos(vocabulary: Vocabulary) -> int | None:
    """The token that is put before every text; None: none."""
    return vocabulary.bos if vocabulary.adds_bos else None


def context_of(path: Path) -> int:
    """How many tokens of the passage a model can take."""
    trained = checked_header(path).hyperparameter("context_length")
    # a check on a few positions would be none, whatever the file claims
    return min(LENGTH, max(trained, _LEAST)) if isinstance(trained, int) and trained > 0 else LENGTH
