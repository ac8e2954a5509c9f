"""The cost curve, and how it is measured and remembered."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec import costs
from edgespec.costs import SIZES, CostCurve, measure, measured_curve
from edgespec.runtimes.base import Runtime, RuntimeOptions, Work

curves = st.dictionaries(st.integers(1, 40), st.floats(1e-6, 10), min_size=2, max_size=10)


# ---- the curve


def test_measured_sizes_cost_what_was_measured() -> None:
    curve = CostCurve({1: 1.0, 2: 1.5, 8: 3.0})
    assert [curve(n) for n in (1, 2, 8)] == [1.0, 1.5, 3.0]


def test_between_sizes_the_cost_is_interpolated() -> None:
    curve = CostCurve({8: 3.0, 1: 1.0, 4: 2.0})
    assert curve(2) == pytest.approx(1 + 1 / 3)
    assert curve(6) == pytest.approx(2.5)


def test_beyond_the_last_size_the_last_slope_goes_on() -> None:
    curve = CostCurve({1: 1.0, 4: 2.0, 8: 4.0})
    assert curve(10) == pytest.approx(5.0)
    assert curve(108) == pytest.approx(54.0)


def test_a_curve_of_one_token_alone_grows_in_proportion() -> None:
    curve = CostCurve({1: 0.5})
    assert [curve(n) for n in (1, 2, 10)] == pytest.approx([0.5, 1.0, 5.0])


def test_a_curve_of_one_larger_size_costs_what_was_measured_there() -> None:
    assert CostCurve({4: 2.0})(4) == pytest.approx(2.0)


def test_a_disturbed_measurement_never_makes_more_tokens_cheaper() -> None:
    curve = CostCurve({1: 1.0, 2: 3.0, 4: 2.0, 8: 5.0})
    assert curve(4) == 3.0
    assert curve(6) == pytest.approx(4.0)


@settings(deadline=None)
@given(curves)
def test_more_tokens_never_cost_less(seconds: dict[int, float]) -> None:
    curve = CostCurve(seconds)
    times = [curve(n) for n in range(1, 60)]
    assert all(after >= before * (1 - 1e-9) for before, after in itertools.pairwise(times))
    assert all(time > 0 for time in times)


@settings(deadline=None)
@given(curves)
def test_a_rising_measurement_is_kept_as_it_is(seconds: dict[int, float]) -> None:
    rising = dict(zip(sorted(seconds), sorted(seconds.values()), strict=True))
    curve = CostCurve(rising)
    assert [curve(n) for n in rising] == pytest.approx(list(rising.values()))


@pytest.mark.parametrize(
    "seconds",
    [{}, {0: 1.0}, {-1: 1.0}, {1: 0.0}, {1: -1.0}, {1: math.nan}, {1: 1.0, 2: -0.5}, {1: 1.0, 0: 1.0}],
)
def test_nonsense_makes_no_curve(seconds: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="cost curve"):
        CostCurve(seconds)


def test_an_infinite_time_makes_no_curve() -> None:
    with pytest.raises(ValueError, match="cost curve"):
        CostCurve({1: 1.0, 2: math.inf})


# ---- corrections

MEASURED = {1: 1.0, 2: 1.2, 4: 1.6, 8: 2.4}


def test_a_pass_as_long_as_expected_changes_nothing() -> None:
    curve = CostCurve(MEASURED)
    for n in (1, 3, 8, 12):
        curve.observe(n, curve(n))
    assert [curve(n) for n in MEASURED] == pytest.approx(list(MEASURED.values()))


def test_a_slower_pass_of_several_tokens_makes_its_own_size_slower() -> None:
    before, curve = CostCurve(MEASURED), CostCurve(MEASURED)
    curve.observe(4, 2 * before(4))
    assert before(4) < curve(4) < 2 * before(4)
    for n in (1, 2, 3, 8, 20):
        assert curve(n) == before(n)


def test_a_slower_plain_pass_makes_every_size_slower() -> None:
    before, curve = CostCurve(MEASURED), CostCurve(MEASURED)
    curve.observe(1, 2 * before(1))
    for n in (1, 2, 4, 20):
        assert curve(n) / before(n) == pytest.approx(curve(1) / before(1))
    assert before(1) < curve(1) < 2 * before(1)


def test_a_faster_pass_makes_its_size_faster() -> None:
    before, curve = CostCurve(MEASURED), CostCurve(MEASURED)
    curve.observe(4, before(4) / 2)
    assert before(4) / 2 < curve(4) < before(4)


def test_a_size_that_was_measured_far_too_fast_is_found_out_in_some_passes() -> None:
    curve = CostCurve({1: 1.0, 5: 1.1})
    for _ in range(30):
        curve.observe(5, 5.0)
    assert curve(5) == pytest.approx(5.0, rel=0.15)
    assert curve(1) == 1.0


def test_a_machine_that_is_slower_throughout_is_learnt_for_all_sizes() -> None:
    before, curve = CostCurve(MEASURED), CostCurve(MEASURED)
    for _ in range(200):
        for n in MEASURED:
            curve.observe(n, 3 * before(n))
    for n in MEASURED:
        assert curve(n) == pytest.approx(3 * before(n), rel=0.02)
    for n in (3, 6, 12):  # never seen, but learnt from the others
        assert 2 * before(n) < curve(n) < 3.05 * before(n)


def test_one_size_that_is_slower_is_learnt_without_spoiling_the_others() -> None:
    before, curve = CostCurve(MEASURED), CostCurve(MEASURED)
    for _ in range(300):
        for n in MEASURED:
            curve.observe(n, before(n) * (2 if n == 4 else 1))
    assert curve(4) == pytest.approx(2 * before(4), rel=0.02)
    for n in (1, 2, 8):
        assert curve(n) == pytest.approx(before(n), rel=0.02)


@pytest.mark.parametrize(("wild", "tame"), [(1000.0, 4.0), (0.0, 0.25)])
def test_one_disturbed_pass_counts_only_within_bounds(wild: float, tame: float) -> None:
    first, second = CostCurve(MEASURED), CostCurve(MEASURED)
    first.observe(2, wild * MEASURED[2])
    second.observe(2, tame * MEASURED[2])
    assert [first(n) for n in range(1, 20)] == pytest.approx([second(n) for n in range(1, 20)])
    assert 0.8 < first(2) / MEASURED[2] < 1.2


# ---- measuring


class Clock:
    """A clock that moves only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


class FakeSequence:
    def __init__(self) -> None:
        self.length = 0


class FakeRuntime:
    """What `measure` needs of a runtime. A pass over n tokens takes `seconds(pass, n)` on the clock."""

    def __init__(
        self,
        clock: Clock,
        seconds: Callable[[int, int], float] = lambda _pass, n: 0.01 + 0.002 * n,
        identity: str = "fake",
        draft_tokens: int = 32,
        context_length: int = 256,
        vocabulary_size: int = 50,
    ) -> None:
        self.options = RuntimeOptions(ctx=context_length, draft_tokens=draft_tokens)
        self.identity, self.context_length = identity, context_length
        self.vocabulary = SimpleNamespace(size=vocabulary_size)
        self.forwards: list[int] = []
        self.opened: list[FakeSequence] = []
        self._clock, self._seconds, self._uncommitted = clock, seconds, 0

    def open(self) -> FakeSequence:
        self.opened.append(FakeSequence())
        return self.opened[-1]

    def release(self, sequence: FakeSequence) -> None:
        self.opened.remove(sequence)

    def prefill(self, sequence: FakeSequence, tokens: list[int]) -> int:
        self._check(tokens)
        sequence.length += len(tokens)
        assert sequence.length <= self.context_length
        return len(tokens)

    def forward(self, work: list[Work]) -> list[Any]:
        ((sequence, tree, *_),) = work
        self._check(tree.tokens)
        assert sequence in self.opened
        assert self._uncommitted == 0
        assert len(tree) <= self.options.draft_tokens + 1
        assert sequence.length + len(tree) <= self.context_length
        self._uncommitted = len(tree)
        self._clock.now += self._seconds(len(self.forwards), len(tree))
        self.forwards.append(len(tree))
        return []

    def truncate(self, sequence: FakeSequence, length: int) -> None:
        assert length <= sequence.length
        sequence.length, self._uncommitted = length, 0

    def _check(self, tokens: Any) -> None:
        assert all(0 <= token < self.vocabulary.size for token in tokens)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(costs, "time", clock)
    return clock


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of remembered curves, empty."""
    monkeypatch.setenv("EDGESPEC_CACHE", str(tmp_path))
    return tmp_path / "costs"


def as_runtime(fake: FakeRuntime) -> Runtime:
    return cast(Runtime, fake)


def test_each_size_is_measured(clock: Clock) -> None:
    fake = FakeRuntime(clock)
    seconds = measure(as_runtime(fake))
    assert seconds == pytest.approx({n: 0.01 + 0.002 * n for n in SIZES})
    assert all(fake.forwards.count(n) >= 3 for n in SIZES)


def test_one_disturbed_pass_of_a_size_does_not_show(clock: Clock) -> None:
    for disturbed in range(20):
        fake = FakeRuntime(clock, lambda index, n, at=disturbed: 5.0 if index == at else 0.1 * n)
        assert measure(as_runtime(fake), (1, 2, 4)) == pytest.approx({1: 0.1, 2: 0.2, 4: 0.4})


def test_the_first_passes_only_warm_up(clock: Clock) -> None:
    fake = FakeRuntime(clock, lambda index, n: 9.0 if index < 2 else 0.1 * n)
    assert measure(as_runtime(fake), (1, 2), rounds=1) == pytest.approx({1: 0.1, 2: 0.2})


def test_sizes_that_the_tree_cannot_hold_are_left_out(clock: Clock) -> None:
    assert list(measure(as_runtime(FakeRuntime(clock, draft_tokens=4)))) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("context_length", "sizes"), [(1, [1]), (2, [1]), (4, [1, 2, 3]), (10, [1, 2, 3, 4, 5, 6, 8])])
def test_sizes_that_the_context_cannot_hold_are_left_out(clock: Clock, context_length: int, sizes: list[int]) -> None:
    assert list(measure(as_runtime(FakeRuntime(clock, context_length=context_length)))) == sizes


def test_a_small_vocabulary_is_enough(clock: Clock) -> None:
    assert measure(as_runtime(FakeRuntime(clock, vocabulary_size=2)))


def test_the_sequence_is_released_in_the_end(clock: Clock) -> None:
    fake = FakeRuntime(clock)
    measure(as_runtime(fake))
    assert fake.opened == []


def test_the_sequence_is_released_when_a_pass_fails(clock: Clock) -> None:
    def fail(index: int, n: int) -> float:
        raise MemoryError

    fake = FakeRuntime(clock, fail)
    with pytest.raises(MemoryError):
        measure(as_runtime(fake))
    assert fake.opened == []


# ---- remembering


def test_a_curve_is_measured_once_and_then_remembered(clock: Clock, store: Path) -> None:
    first, second = FakeRuntime(clock), FakeRuntime(clock, lambda _index, n: 0.02 + 0.004 * n)
    notices: list[str] = []
    curve = measured_curve(as_runtime(first), notify=lambda: notices.append("first"))
    again = measured_curve(as_runtime(second), notify=lambda: notices.append("second"))
    assert first.forwards
    assert set(second.forwards) == {1}  # which tells how fast the machine is today
    assert notices == ["first"]
    assert [again(n) for n in range(1, 30)] == pytest.approx([2 * curve(n) for n in range(1, 30)])
    assert curve(4) == pytest.approx(0.018)


def test_another_runtime_is_measured_anew(clock: Clock, store: Path) -> None:
    measured_curve(as_runtime(FakeRuntime(clock)))
    other = FakeRuntime(clock, lambda _index, n: 1.0 * n, identity="other device")
    assert measured_curve(as_runtime(other))(2) == pytest.approx(2.0)
    assert other.forwards


def test_other_sizes_are_measured_anew(clock: Clock, store: Path) -> None:
    measured_curve(as_runtime(FakeRuntime(clock)), (1, 2))
    other = FakeRuntime(clock)
    measured_curve(as_runtime(other), (1, 4))
    assert set(other.forwards) == {1, 4}


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"not json",
        b'{"seconds": {"1": 0.5',
        b"\xff\xfe\x00",
        b"null",
        b"[]",
        b"17",
        b'"text"',
        b"{}",
        b'{"seconds": null}',
        b'{"seconds": [1, 2]}',
        b'{"seconds": {}}',
        b'{"seconds": {"one": 1.0}}',
        b'{"seconds": {"1": null}}',
        b'{"seconds": {"1": "fast"}}',
        b'{"seconds": {"1": [1]}}',
        b'{"seconds": {"1": -1.0}}',
        b'{"seconds": {"1": 0}}',
        b'{"seconds": {"1": NaN}}',
        b'{"seconds": {"0": 1.0}}',
        pytest.param(b'{"seconds": {"1": 1.0, "2": Infinity}}', id="infinite time"),
        pytest.param(b'{"seconds": {"1": 1' + b"0" * 400 + b"}}", id="time beyond floats"),
        pytest.param(b'{"seconds": {"1' + b"0" * 400 + b'": 1.0}}', id="size beyond floats"),
        pytest.param(b"[" * 200_000, id="nested too deeply"),
    ],
)
def test_a_damaged_file_is_measured_again_and_replaced(clock: Clock, store: Path, damage: bytes) -> None:
    measured_curve(as_runtime(FakeRuntime(clock)))
    (file,) = store.iterdir()
    file.write_bytes(damage)
    again, third = FakeRuntime(clock), FakeRuntime(clock)
    assert measured_curve(as_runtime(again))(4) == pytest.approx(0.018)
    assert again.forwards
    assert set(json.loads(file.read_bytes())["seconds"]) == {str(n) for n in SIZES}
    measured_curve(as_runtime(third))
    assert set(third.forwards) == {1}


def test_a_deleted_file_is_measured_again(clock: Clock, store: Path) -> None:
    measured_curve(as_runtime(FakeRuntime(clock)))
    (file,) = store.iterdir()
    file.unlink()
    again = FakeRuntime(clock)
    measured_curve(as_runtime(again))
    assert again.forwards


def test_a_folder_that_cannot_be_written_costs_only_the_memory(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("EDGESPEC_CACHE", str(tmp_path / "file"))
    assert measured_curve(as_runtime(FakeRuntime(clock)))(4) == pytest.approx(0.018)
