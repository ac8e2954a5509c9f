from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from scipy.stats import entropy

from edgespec.convert.agreement import Agreement, compare, scored
from edgespec.runtimes.base import RuntimeOptions, Work
from edgespec.runtimes.llamacpp import LlamaCpp
from edgespec.runtimes.tree import TokenTree


def test_figures_are_those_of_scipy() -> None:
    rng = np.random.default_rng(1)
    p = rng.normal(size=(50, 300)).astype(np.float32) * 3
    q = p + rng.normal(size=p.shape).astype(np.float32) * 0.5
    found = compare(iter(p), iter(q))
    kl = [entropy(softmax(a.astype(float)), softmax(b.astype(float))) for a, b in zip(p, q, strict=True)]
    assert found.positions == 50
    assert found.kl == pytest.approx(np.mean(kl), rel=1e-6)
    assert found.kl_p99 == pytest.approx(np.quantile(kl, 0.99), rel=1e-6)
    assert found.same_top == np.mean(p.argmax(1) == q.argmax(1))
    difference = np.abs((p - p.mean(1, keepdims=True)) - (q - q.mean(1, keepdims=True)))
    assert found.worst_logit == pytest.approx(difference.max(), rel=1e-5)
    assert found.worst_share == pytest.approx((difference.max(1) / np.ptp(p, axis=1)).max(), rel=1e-5)


def test_a_model_agrees_with_itself_also_shifted_and_padded() -> None:
    logits = np.random.default_rng(2).normal(size=(5, 40))
    found = compare(iter(logits + 100.0), iter(np.pad(logits, ((0, 0), (0, 3)), constant_values=-1e9)))
    assert (found.same_top, found.kl) == (1.0, pytest.approx(0, abs=1e-12))
    assert found.error == pytest.approx(0, abs=1e-12)


def test_strangers_are_near_the_square_root_of_two() -> None:
    rng = np.random.default_rng(3)
    found = compare(iter(rng.normal(size=(20, 2000))), iter(rng.normal(size=(20, 2000))))
    assert found.error == pytest.approx(2**0.5, abs=0.05)


def test_what_is_not_a_number_is_no_agreement() -> None:
    found = compare(iter(np.ones((2, 4))), iter(np.full((2, 4), np.nan)))
    assert not found.error <= 1


def test_scored_logits_are_those_of_single_steps(tiny: Path) -> None:
    tokens = list(range(20, 90))
    rows = np.stack([*scored(tiny, tokens)])
    options = RuntimeOptions(ctx=128, repack=False, cache_type="f32", flash_attention=False)
    runtime = LlamaCpp.load(tiny, options)
    sequence = runtime.open()
    for position, token in enumerate(tokens):
        (scores,) = runtime.forward([Work(sequence, TokenTree.chain([token]))])
        np.testing.assert_allclose(log_softmax(rows[position]), log_softmax(scores.logits[0]), atol=0.01)
        runtime.commit(sequence, [0])
    runtime.close()


def test_json_holds_plain_numbers() -> None:
    assert Agreement(3, 1.0, 0.0, 0.0, 0.1234567891, 1.0, 0.1).to_json()["error"] == 0.123457
