"""Filters, penalties and draws against plain Python written from their definitions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from edgespec.models.errors import UsageError
from edgespec.sampling import (
    MAX_PENALTY_WINDOW,
    Candidates,
    Filter,
    Sampler,
    SamplingOptions,
    bias,
    draw,
    min_p,
    penalties,
    softmax,
    temper,
    top_k,
    top_p,
    typical_p,
)

ROUNDING = 1e-9

Logits = dict[int, float]
Stage = Callable[[Logits, Sequence[int], SamplingOptions], Logits]


# ---- the reference: dictionaries, sorted lists and loops


def reference_softmax(logits: Logits) -> dict[int, float]:
    top = max(logits.values())
    weights = {token: math.exp(value - top) for token, value in logits.items()}
    total = math.fsum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def reference_bias(logits: Logits, _history: Sequence[int], options: SamplingOptions) -> Logits:
    return {token: value + options.logit_bias.get(token, 0.0) for token, value in logits.items()}


def reference_penalties(logits: Logits, history: Sequence[int], options: SamplingOptions) -> Logits:
    result = dict(logits)
    recent = [history[i] for i in range(max(0, len(history) - options.penalty_window), len(history))]
    for token in set(recent) & set(result):
        times = 0
        for seen in recent:
            times += seen == token
        value = result[token]
        if value > 0:
            value /= options.repetition_penalty
        else:
            value *= options.repetition_penalty
        result[token] = value - options.presence_penalty - options.frequency_penalty * times
    return result


def reference_top_k(logits: Logits, _history: Sequence[int], options: SamplingOptions) -> Logits:
    if options.top_k == 0:
        return logits
    kept = sorted(logits, key=lambda token: -logits[token])[: options.top_k]
    return {token: logits[token] for token in kept}


def first_reaching(order: list[int], p: dict[int, float], mass: float) -> list[int]:
    kept: list[int] = []
    for token in order:
        kept.append(token)
        if math.fsum(p[t] for t in kept) >= mass:
            break
    return kept


def distances_to_entropy(p: dict[int, float]) -> dict[int, float]:
    entropy = math.fsum(-x * math.log(x) for x in p.values() if x > 0)
    return {token: abs(-math.log(x) - entropy) if x > 0 else math.inf for token, x in p.items()}


def reference_typical_p(logits: Logits, _history: Sequence[int], options: SamplingOptions) -> Logits:
    if options.typical_p == 1:
        return logits
    p = reference_softmax(logits)
    distance = distances_to_entropy(p)
    kept = first_reaching(sorted(p, key=lambda token: distance[token]), p, options.typical_p)
    return {token: logits[token] for token in kept}


def reference_top_p(logits: Logits, _history: Sequence[int], options: SamplingOptions) -> Logits:
    if options.top_p == 1:
        return logits
    p = reference_softmax(logits)
    kept = first_reaching(sorted(p, key=lambda token: -p[token]), p, options.top_p)
    return {token: logits[token] for token in kept}


def reference_min_p(logits: Logits, _history: Sequence[int], options: SamplingOptions) -> Logits:
    p = reference_softmax(logits)
    likeliest = max(p.values())
    return {token: value for token, value in logits.items() if p[token] >= options.min_p * likeliest}


def reference_temperature(logits: Logits, _history: Sequence[int], options: SamplingOptions) -> Logits:
    return {token: value / options.temperature for token, value in logits.items()}


DOCUMENTED_ORDER: tuple[Stage, ...] = (
    reference_bias,
    reference_penalties,
    reference_top_k,
    reference_typical_p,
    reference_top_p,
    reference_min_p,
    reference_temperature,
)


def reference_distribution(
    logits: Sequence[float],
    history: Sequence[int],
    options: SamplingOptions,
    order: Sequence[Stage] = DOCUMENTED_ORDER,
) -> list[float]:
    left = dict(enumerate(map(float, logits)))
    for stage in order:
        left = stage(left, history, options)
    p = reference_softmax(left)
    return [p.get(token, 0.0) for token in range(len(logits))]


# ---- helpers


def kept_by(keep: Filter, values: Sequence[float]) -> set[int]:
    """The tokens that a filter keeps; checks that each still carries its own logit."""
    candidates = keep(Candidates(np.arange(len(values)), np.array(values, np.float64)))
    tokens = [int(token) for token in candidates.tokens]
    assert len(set(tokens)) == len(tokens)
    assert [float(x) for x in candidates.logits] == [values[token] for token in tokens]
    return set(tokens)


finite_logits = st.one_of(st.floats(-30, 30), st.integers(-3, 3).map(float))
"""Continuous ones, and small integers, which tie often."""
logit_lists = st.tuples(
    st.lists(st.one_of(finite_logits, st.just(-math.inf)), max_size=39), finite_logits, st.integers(0, 39)
).map(lambda parts: [*parts[0][: parts[2]], parts[1], *parts[0][parts[2] :]])
masses = st.floats(0.001, 0.999)
seeds = st.integers(0, 2**32 - 1)


# ---- filters


@settings(deadline=None)
@given(logit_lists)
def test_softmax_agrees_with_the_loop(values: list[float]) -> None:
    expected = reference_softmax(dict(enumerate(values)))
    p = softmax(np.array(values))
    assert p == pytest.approx([expected[t] for t in range(len(values))], rel=1e-9, abs=1e-300)
    assert all(p[t] == 0 for t, value in enumerate(values) if value == -math.inf)


@settings(deadline=None)
@given(logit_lists, st.integers(1, 45))
def test_top_k_keeps_exactly_the_k_largest(values: list[float], k: int) -> None:
    kept = kept_by(top_k(k), values)
    assert sorted((values[token] for token in kept), reverse=True) == sorted(values, reverse=True)[:k]


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6])
def test_top_k_with_ties_keeps_k_and_nothing_below_the_tie(k: int) -> None:
    values = [1.0, 2.0, 2.0, 0.0, 2.0, 1.0]
    kept = kept_by(top_k(k), values)
    assert len(kept) == k
    assert sorted((values[token] for token in kept), reverse=True) == [2.0, 2.0, 2.0, 1.0, 1.0, 0.0][:k]


@settings(deadline=None)
@given(logit_lists, masses)
def test_top_p_keeps_the_smallest_set_of_likeliest_tokens_that_reaches_the_mass(
    values: list[float], mass: float
) -> None:
    p = reference_softmax(dict(enumerate(values)))
    kept = kept_by(top_p(mass), values)
    dropped = set(p) - kept
    assert min(p[t] for t in kept) >= max((p[t] for t in dropped), default=0.0) * (1 - ROUNDING)
    together = math.fsum(p[t] for t in kept)
    assert together >= mass - ROUNDING
    assert len(kept) == 1 or together - min(p[t] for t in kept) < mass + ROUNDING

    order = sorted(p, key=lambda token: -p[token])
    fewest, most = (len(first_reaching(order, p, mass + by)) for by in (-ROUNDING, ROUNDING))
    assert fewest <= len(kept) <= most


@settings(deadline=None)
@given(logit_lists, masses)
def test_typical_p_keeps_the_smallest_set_nearest_to_the_entropy_that_reaches_the_mass(
    values: list[float], mass: float
) -> None:
    p = reference_softmax(dict(enumerate(values)))
    distance = distances_to_entropy(p)
    kept = kept_by(typical_p(mass), values)
    farthest = max(distance[t] for t in kept)
    assert farthest <= min((distance[t] for t in set(p) - kept), default=math.inf) + ROUNDING
    together = math.fsum(p[t] for t in kept)
    assert together >= mass - ROUNDING
    last = [p[t] for t in kept if distance[t] >= farthest - ROUNDING]
    assert len(kept) == 1 or together - max(last) < mass + ROUNDING


def test_typical_p_may_leave_out_the_likeliest_token() -> None:
    # entropy 1.89: the token of 0.4 says 0.92 and is further away than those of 0.12, which say 2.12
    p = [0.4, 0.12, 0.12, 0.12, 0.12, 0.12]
    assert kept_by(typical_p(0.55), [math.log(x) for x in p]) == {1, 2, 3, 4, 5}


@settings(deadline=None)
@given(logit_lists, st.floats(1e-6, 1.0))
def test_min_p_keeps_what_is_likely_enough_beside_the_likeliest(values: list[float], fraction: float) -> None:
    p = reference_softmax(dict(enumerate(values)))
    bound = fraction * max(p.values())
    kept = kept_by(min_p(fraction), values)
    assert {t for t in p if p[t] > bound * (1 + ROUNDING)} <= kept
    assert kept <= {t for t in p if p[t] >= bound * (1 - ROUNDING)}
    assert values.index(max(values)) in kept


def test_min_p_of_1_keeps_all_that_tie_for_the_first_place() -> None:
    assert kept_by(min_p(1.0), [3.0, 1.0, 3.0, 2.999]) == {0, 2}


@settings(deadline=None)
@given(logit_lists, masses)
def test_every_filter_keeps_at_least_one_token(values: list[float], mass: float) -> None:
    for keep in (top_k(1), top_p(mass * 1e-6), typical_p(mass * 1e-6), min_p(1.0)):
        assert kept_by(keep, values)


@settings(deadline=None)
@given(logit_lists, st.sampled_from([1e-6, 0.3, 1.0, 100.0]))
def test_temperature_divides_the_differences_between_logits(values: list[float], temperature: float) -> None:
    candidates = temper(temperature)(Candidates(np.arange(len(values)), np.array(values)))
    top = max(values)
    got = [float(x - candidates.logits.max()) for x in candidates.logits]
    assert got == pytest.approx([(x - top) / temperature for x in values], rel=1e-9, abs=1e-9)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-6, 100.0, 1e300])
@settings(deadline=None, max_examples=25)
@given(values=st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=30))
def test_extreme_temperatures_give_finite_probabilities(values: list[float], temperature: float) -> None:
    p = Sampler(SamplingOptions(temperature=temperature)).distribution(np.array(values, np.float32), [])
    assert np.isfinite(p).all()
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1)


def test_a_tiny_temperature_leaves_only_the_likeliest_and_a_large_one_flattens() -> None:
    logits = np.array([1.0, 3.0, 2.0], np.float32)
    assert Sampler(SamplingOptions(temperature=1e-6)).distribution(logits, []).tolist() == [0.0, 1.0, 0.0]
    flat = Sampler(SamplingOptions(temperature=100.0)).distribution(logits, [])
    assert flat[1] / flat[0] == pytest.approx(math.exp(0.02))
    assert flat[1] / flat[2] == pytest.approx(math.exp(0.01))


# ---- penalties and bias


@settings(deadline=None)
@given(
    values=st.lists(st.floats(-20, 20), min_size=5, max_size=5),
    history=st.lists(st.integers(0, 4), max_size=20),
    repetition=st.floats(0.2, 3),
    presence=st.floats(-2, 2),
    frequency=st.floats(-2, 2),
    window=st.integers(0, 25),
)
def test_penalties_agree_with_the_loop(
    values: list[float], history: list[int], repetition: float, presence: float, frequency: float, window: int
) -> None:
    options = SamplingOptions(
        repetition_penalty=repetition, presence_penalty=presence, frequency_penalty=frequency, penalty_window=window
    )
    logits = np.array(values)
    penalties(repetition, presence, frequency, window)(logits, history)
    expected = reference_penalties(dict(enumerate(values)), history, options)
    assert logits == pytest.approx([expected[t] for t in range(5)], rel=1e-12, abs=1e-12)
    assert Sampler(options).adjusted(np.array(values), history) == pytest.approx(logits, rel=1e-12, abs=1e-12)


def test_penalties_count_only_what_lies_in_the_window() -> None:
    options = SamplingOptions(
        repetition_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25, penalty_window=4, temperature=1.0
    )
    adjusted = Sampler(options).adjusted(np.array([4.0, -1.0, 3.0, 0.0], np.float32), [2, 2, 0, 1, 0, 0])
    assert adjusted.tolist() == [4 / 2 - 0.5 - 3 * 0.25, -1 * 2 - 0.5 - 0.25, 3.0, 0.0]


def test_a_window_of_zero_and_an_empty_history_penalise_nothing() -> None:
    logits = np.array([1.0, 2.0])
    strong = {"repetition_penalty": 2.0, "presence_penalty": 3.0, "frequency_penalty": 4.0}
    off = Sampler(SamplingOptions(penalty_window=0, **cast(Any, strong)))
    assert off.window == 0
    assert off.adjusted(logits, [0, 1, 1]).tolist() == [1.0, 2.0]
    assert Sampler(SamplingOptions(**cast(Any, strong))).adjusted(logits, []).tolist() == [1.0, 2.0]


def test_the_sampler_says_how_much_history_it_looks_at() -> None:
    assert Sampler(SamplingOptions()).window == 0
    assert Sampler(SamplingOptions(repetition_penalty=1.1)).window == 64
    assert Sampler(SamplingOptions(presence_penalty=0.1, penalty_window=7)).window == 7
    assert Sampler(SamplingOptions(frequency_penalty=-0.1, penalty_window=9)).window == 9


def test_bias_is_added_to_the_named_tokens_alone() -> None:
    logits = np.array([0.0, 1.0, 2.0, 3.0])
    bias({1: 2.5, 3: -4.0})(logits, [])
    assert logits.tolist() == [0.0, 3.5, 2.0, -1.0]


@settings(deadline=None)
@given(seeds, st.integers(0, 11), st.sampled_from([0.0, 1e-6, 1.0, 100.0]))
def test_a_bias_of_minus_infinity_excludes_a_token(seed: int, token: int, temperature: float) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=12).astype(np.float32)
    logits[token] = 50.0  # it would win without the bias
    options = SamplingOptions(
        temperature=temperature, logit_bias={token: -math.inf}, top_p=0.99, typical_p=0.99, repetition_penalty=1.3
    )
    sampler = Sampler(options)
    p = sampler.distribution(logits, [token, 3])
    assert p[token] == 0
    assert p.sum() == pytest.approx(1)
    assert sampler.best(logits, [token, 3]) != token
    assert all(draw(p, rng) != token for _ in range(20))


def test_the_callers_logits_stay_as_they_are() -> None:
    logits = np.array([1.0, 2.0, 3.0], np.float32)
    sampler = Sampler(
        SamplingOptions(temperature=0.5, logit_bias={0: 5.0}, repetition_penalty=2.0, top_k=2, top_p=0.9, min_p=0.1)
    )
    sampler.distribution(logits, [2, 2])
    sampler.best(logits, [2, 2])
    assert logits.tolist() == [1.0, 2.0, 3.0]


# ---- all of it together


all_options = st.builds(
    SamplingOptions,
    temperature=st.floats(0.05, 5),
    top_k=st.integers(0, 40),
    top_p=st.floats(0.05, 1),
    min_p=st.floats(0, 0.9),
    typical_p=st.floats(0.05, 1),
    repetition_penalty=st.floats(0.5, 2),
    presence_penalty=st.floats(-1, 1),
    frequency_penalty=st.floats(-1, 1),
    penalty_window=st.integers(0, 20),
    logit_bias=st.dictionaries(st.integers(0, 31), st.one_of(st.floats(-5, 5), st.just(-math.inf)), max_size=5),
)


@settings(deadline=None, max_examples=100)
@given(seeds, all_options)
def test_the_distribution_agrees_with_the_reference_and_sums_to_1(seed: int, options: SamplingOptions) -> None:
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=32) * 3).astype(np.float32)
    history = [int(t) for t in rng.integers(0, 32, size=int(rng.integers(0, 30)))]
    p = Sampler(options).distribution(logits, history)
    assert p.dtype == np.float64
    assert p.shape == (32,)
    assert p.sum() == pytest.approx(1, abs=1e-12)
    expected = reference_distribution(logits.tolist(), history, options)
    assert p == pytest.approx(expected, rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("first", range(len(DOCUMENTED_ORDER) - 1))
def test_stages_run_in_the_documented_order(first: int) -> None:
    order = list(DOCUMENTED_ORDER)
    order[first], order[first + 1] = order[first + 1], order[first]
    options = SamplingOptions(
        temperature=2.5, top_k=8, top_p=0.8, min_p=0.15, typical_p=0.8, repetition_penalty=1.5, presence_penalty=0.4,
        frequency_penalty=0.2, logit_bias={0: 1.0, 1: -1.0, 2: 2.0},
    )  # fmt: skip
    told_apart = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        logits = rng.normal(size=16) * 1.5
        history = [0, 1, 1, 2, 3, 4, 5]
        expected = reference_distribution(logits.tolist(), history, options)
        swapped = reference_distribution(logits.tolist(), history, options, order)
        told_apart += max(abs(a - b) for a, b in zip(expected, swapped, strict=True)) > 1e-6
        assert Sampler(options).distribution(logits, history) == pytest.approx(expected, rel=1e-7, abs=1e-12)
    assert told_apart > 0  # the cases do tell this order from the one with two stages swapped


@settings(deadline=None)
@given(seeds)
def test_greedy_takes_the_largest_adjusted_logit_whatever_the_filters(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=10).astype(np.float32)
    history = [int(t) for t in rng.integers(0, 10, size=8)]
    options = SamplingOptions(
        top_k=3, top_p=0.1, min_p=0.9, typical_p=0.1, repetition_penalty=1.8, logit_bias={2: 1.0, 5: -math.inf}
    )
    sampler = Sampler(options)
    adjusted = reference_penalties(reference_bias(dict(enumerate(logits.tolist())), history, options), history, options)
    assert sampler.greedy
    assert not sampler.plain
    assert sampler.best(logits, history) == max(adjusted, key=lambda token: adjusted[token])


def test_without_bias_and_penalties_the_best_token_is_the_largest_logit() -> None:
    sampler = Sampler(SamplingOptions(top_k=5))
    assert sampler.plain
    assert sampler.best(np.array([1.0, 4.0, 2.0], np.float32), [1, 1, 1]) == 1


# ---- draws


class FixedRandom:
    """A generator whose `random` always gives the same."""

    def __init__(self, value: float) -> None:
        self._value = value

    def random(self) -> float:
        return self._value


def assert_drawn_like(p: np.ndarray, drawn: list[int]) -> None:
    expected = p / p.sum() * len(drawn)
    counts = Counter(drawn)
    assert not any(expected[token] == 0 for token in counts)
    likely = [int(t) for t in np.flatnonzero(expected)]
    assert min(expected[t] for t in likely) > 5  # else the test statistic has another distribution
    result = stats.chisquare([counts[t] for t in likely], [expected[t] for t in likely])
    assert result.pvalue > 1e-4


@pytest.mark.parametrize("seed", range(5))
def test_draws_follow_the_distribution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(12, 2.0)) + 0.01
    p[rng.choice(12, size=4, replace=False)] = 0
    p /= p.sum()
    assert_drawn_like(p, [draw(p, rng) for _ in range(20_000)])


def test_draws_from_a_distribution_that_does_not_sum_to_1() -> None:
    rng = np.random.default_rng(11)
    p = np.array([0.0, 0.6, 0.3, 0.0, 1.2])
    assert_drawn_like(p, [draw(p, rng) for _ in range(20_000)])


def test_draws_after_all_filters_follow_the_reference() -> None:
    rng = np.random.default_rng(5)
    logits = rng.normal(size=30).astype(np.float32)
    options = SamplingOptions(temperature=0.9, top_k=10, top_p=0.9, min_p=0.05, presence_penalty=0.5)
    p = Sampler(options).distribution(logits, [1, 2, 3])
    drawn = [draw(p, rng) for _ in range(20_000)]
    assert_drawn_like(np.array(reference_distribution(logits.tolist(), [1, 2, 3], options)), drawn)


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.just(0.0), st.floats(1e-300, 1.0)), min_size=1, max_size=20).filter(any),
    st.one_of(st.sampled_from([0.0, 0.5, math.nextafter(1, 0)]), st.floats(0, 1, exclude_max=True)),
)
def test_a_token_of_probability_zero_is_never_drawn(values: list[float], chance: float) -> None:
    token = draw(np.array(values), cast(np.random.Generator, FixedRandom(chance)))
    assert values[token] > 0


def test_the_same_seed_draws_the_same_tokens() -> None:
    p = np.full(50, 0.02)
    first, second = (np.random.default_rng(3) for _ in range(2))
    assert [draw(p, first) for _ in range(50)] == [draw(p, second) for _ in range(50)]


# ---- validation


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", value) for value in (-0.1, math.nan, math.inf, -math.inf)),
        ("top_k", -1),
        *(("top_p", value) for value in (0.0, -0.1, 1.0001, math.nan, math.inf)),
        *(("min_p", value) for value in (-0.1, 1.0001, math.nan)),
        *(("typical_p", value) for value in (0.0, -0.1, 1.0001, math.nan)),
        *(("repetition_penalty", value) for value in (0.0, -1.0, math.inf, math.nan)),
        *(("presence_penalty", value) for value in (math.inf, -math.inf, math.nan)),
        *(("frequency_penalty", value) for value in (math.inf, -math.inf, math.nan)),
        *(("penalty_window", value) for value in (-1, MAX_PENALTY_WINDOW + 1)),
        ("seed", -1),
        *(("logit_bias", value) for value in ({-1: 0.0}, {3: math.nan}, {3: math.inf}, {0: 1.0, 7: math.nan})),
    ],
)
def test_a_bad_value_is_a_usage_error_that_names_the_option(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=name):
        SamplingOptions(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0), ("temperature", 5e-324), ("top_k", 0), ("top_p", 1), ("top_p", 1e-9), ("min_p", 0),
        ("min_p", 1), ("typical_p", 1), ("typical_p", 1e-9), ("repetition_penalty", 0.5), ("presence_penalty", -2.0),
        ("frequency_penalty", -2.0), ("penalty_window", 0), ("penalty_window", MAX_PENALTY_WINDOW), ("seed", 0),
        ("seed", None), ("logit_bias", {0: -math.inf}), ("logit_bias", {}),
    ],
)  # fmt: skip
def test_values_at_the_edge_of_their_range_are_taken(name: str, value: Any) -> None:
    assert getattr(SamplingOptions(**{name: value}), name) == value
