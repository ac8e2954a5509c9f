"""Acceptance by depth, and the three rules for how much to draft."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.costs import CostCurve
from edgespec.draft_length import ExpectedSpeed, FixedLength, RecentAcceptance, Record
from edgespec.drafters.base import Outcome, Prospect
from edgespec.runtimes.tree import TokenTree


def outcome(drafted: int, accepted: int) -> Outcome:
    """Of a chain of `drafted` tokens."""
    tree = TokenTree.chain(list(range(drafted))).rooted(99)
    return Outcome("some", 0, tree, list(range(accepted + 1)), 0.1, 0.2)


class KnownAcceptance(Record):
    """A record whose acceptance is given."""

    def __init__(self, acceptances: list[float]) -> None:
        super().__init__(0.5)
        self._given = acceptances

    def acceptance(self, depth: int) -> float:
        return self._given[depth]


# ---- the record


def test_before_any_pass_the_prior_is_expected_at_each_depth() -> None:
    record = Record(0.3)
    assert [record.acceptance(depth) for depth in range(64)] == pytest.approx([0.3] * 64)


def test_one_pass_counts_beside_a_prior_that_weighs_as_much_as_two() -> None:
    record = Record(0.5)
    record.observe(outcome(3, 1))  # the first was accepted, the second refused, the third not looked at
    first = (1 + 1.9 * 0.5) / (1 + 1.9)  # the prior's weight of 2 has faded to 0.95 of it
    second = (0 + 1.9 * first) / (1 + 1.9)
    assert record.acceptance(0) == pytest.approx(first)
    assert record.acceptance(1) == pytest.approx(second)
    assert record.acceptance(2) == pytest.approx(second)
    assert record.acceptance(40) == pytest.approx(second)


def test_older_passes_count_less() -> None:
    record = Record(0.5)
    for drafted, accepted in ((3, 1), (2, 2), (1, 0)):
        record.observe(outcome(drafted, accepted))
    # depth 0: accepted, accepted, refused; depth 1: refused, accepted, not tried
    faded = 2 * 0.95**3, 2 * 0.95**2
    first = (0.95**2 + 0.95 + faded[0] * 0.5) / (0.95**2 + 0.95 + 1 + faded[0])
    second = (1 + faded[1] * first) / (0.95 + 1 + faded[1])
    assert record.acceptance(0) == pytest.approx(first)
    assert record.acceptance(1) == pytest.approx(second)
    assert record.acceptance(2) == pytest.approx(second)


def test_a_draft_accepted_whole_says_nothing_of_deeper_tokens() -> None:
    record = Record(0.1)
    record.observe(outcome(2, 2))
    first = (1 + 1.9 * 0.1) / 2.9
    second = (1 + 1.9 * first) / 2.9
    assert [record.acceptance(depth) for depth in range(4)] == pytest.approx([first, second, second, second])


def test_shares_are_of_the_last_ten_passes() -> None:
    record = Record(0.5)
    for accepted in (0, 0, 1, 2, 3, 4, 4, 4, 4, 4, 4, 2):
        record.observe(outcome(4, accepted))
    assert list(record.shares) == [0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1, 0.5]


def test_in_a_tree_depths_count_not_nodes() -> None:
    # root 0; under it 1 and 2; under 2 the nodes 3 and 4; the path 0, 2, 4 was accepted
    tree = TokenTree((9, 1, 2, 3, 4), (-1, 0, 0, 2, 2))
    record = Record(0.5)
    record.observe(Outcome("some", 0, tree, [0, 2, 4], 0.1, 0.2))
    first = (1 + 1.9 * 0.5) / 2.9
    second = (1 + 1.9 * first) / 2.9
    assert [record.acceptance(depth) for depth in range(3)] == pytest.approx([first, second, second])
    assert list(record.shares) == [1.0]


@settings(deadline=None)
@given(
    st.floats(0.01, 0.99),
    st.lists(st.tuples(st.integers(1, 64), st.integers(0, 64)).map(lambda pair: (pair[0], min(pair))), max_size=30),
)
def test_acceptance_stays_a_probability(prior: float, passes: list[tuple[int, int]]) -> None:
    record = Record(prior)
    for drafted, accepted in passes:
        record.observe(outcome(drafted, accepted))
    assert all(0 <= record.acceptance(depth) <= 1 for depth in range(64))
    assert all(0 <= share <= 1 for share in record.shares)


def test_acceptance_follows_what_is_seen() -> None:
    record = Record(0.5)
    for _ in range(100):
        record.observe(outcome(4, 4))
    assert all(record.acceptance(depth) > 0.9 for depth in range(4))
    for _ in range(100):
        record.observe(outcome(4, 0))
    assert record.acceptance(0) < 0.1


def test_a_draft_deeper_than_the_record_is_recorded_as_far_as_it_goes() -> None:
    record = Record(0.5)
    record.observe(outcome(100, 80))
    assert record.acceptance(63) > 0.5
    assert all(0 <= share <= 1 for share in record.shares)


# ---- fixed length


@pytest.mark.parametrize(("length", "limit", "expected"), [(4, 16, 4), (4, 2, 2), (0, 5, 0)])
def test_a_fixed_length_is_drafted_as_far_as_the_drafter_can(length: int, limit: int, expected: int) -> None:
    record = Record(0.1)
    record.observe(outcome(4, 0))
    assert FixedLength(length).propose(record, Prospect(0, limit, 0.1), 10.0).length == expected


# ---- recent acceptance


@pytest.mark.parametrize(
    ("shares", "length"),
    [
        ([], 5),
        ([1.0], 5),
        ([0.75], 5),
        ([0.71] * 10, 5),
        ([0.7], 3),
        ([0.69] * 10, 3),
        ([0.51] * 10, 3),
        ([0.5], 1),
        ([1.0, 0.0], 1),
        ([0.0], 1),
        ([0.0] * 10, 1),
    ],
)
def test_recent_acceptance_sets_the_length(shares: list[float], length: int) -> None:
    record = Record(0.5)
    record.shares.extend(shares)
    assert RecentAcceptance().propose(record, Prospect(0, 16, 0.5), 0.0).length == length


def test_recent_acceptance_forgets_passes_before_the_last_ten() -> None:
    record = Record(0.5)
    rule = RecentAcceptance()
    for _ in range(10):
        record.observe(outcome(4, 0))
    assert rule.propose(record, Prospect(0, 16, 0.5), 0.0).length == 1
    for _ in range(6):
        record.observe(outcome(4, 4))
    assert rule.propose(record, Prospect(0, 16, 0.5), 0.0).length == 3
    for _ in range(4):
        record.observe(outcome(4, 4))
    assert rule.propose(record, Prospect(0, 16, 0.5), 0.0).length == 5


def test_recent_acceptance_keeps_to_the_limit() -> None:
    assert RecentAcceptance().propose(Record(0.5), Prospect(0, 2, 0.5), 0.0).length == 2


# ---- expected speed

acceptance_lists = st.lists(st.floats(0, 1), min_size=1, max_size=24)
curves = st.dictionaries(st.integers(1, 30), st.floats(0.001, 10), min_size=2, max_size=8).map(CostCurve)


def brute_force_rates(acceptances: list[float], curve: CostCurve, cost: float, setup: float = 0.0) -> list[float]:
    """Tokens per second of each length, plain first."""
    rates = [1 / curve(1)]
    for n in range(1, len(acceptances) + 1):
        tokens = 1.0
        for last in range(1, n + 1):
            product = 1.0
            for acceptance in acceptances[:last]:
                product *= acceptance
            tokens += product
        rates.append(tokens / (curve(n + 1) + n * cost + setup))
    return rates


@settings(deadline=None, max_examples=150)
@given(acceptance_lists, curves, st.one_of(st.just(0.0), st.floats(0, 1)))
def test_the_length_with_the_most_tokens_per_second_is_proposed(
    acceptances: list[float], curve: CostCurve, cost: float
) -> None:
    rates = brute_force_rates(acceptances, curve, cost)
    proposal = ExpectedSpeed(curve).propose(KnownAcceptance(acceptances), Prospect(0, len(acceptances), 0.5), cost)
    assert proposal.rate == pytest.approx(max(rates), rel=1e-9)
    assert rates[proposal.length] == pytest.approx(max(rates), rel=1e-9)


@settings(deadline=None)
@given(acceptance_lists, curves, st.floats(0, 1), st.floats(0, 50))
def test_setup_is_shared_out_over_32_passes(
    acceptances: list[float], curve: CostCurve, cost: float, setup: float
) -> None:
    rates = brute_force_rates(acceptances, curve, cost, setup / 32)
    prospect = Prospect(0, len(acceptances), 0.5, setup)
    proposal = ExpectedSpeed(curve).propose(KnownAcceptance(acceptances), prospect, cost)
    assert rates[proposal.length] == pytest.approx(max(rates), rel=1e-9)


@settings(deadline=None)
@given(acceptance_lists, curves, st.floats(0, 1))
def test_a_probe_is_the_best_length_that_drafts(acceptances: list[float], curve: CostCurve, cost: float) -> None:
    rates = brute_force_rates(acceptances, curve, cost)
    probe = ExpectedSpeed(curve).probe(KnownAcceptance(acceptances), Prospect(0, len(acceptances), 0.5), cost)
    assert probe.length >= 1
    assert rates[probe.length] == pytest.approx(max(rates[1:]), rel=1e-9)


def test_a_flat_curve_and_sure_tokens_ask_for_all_there_are() -> None:
    proposal = ExpectedSpeed(CostCurve({1: 1.0, 32: 1.0})).propose(Record(0.95), Prospect(0, 20, 0.95), 0.0)
    assert proposal.length == 20


def test_where_each_token_costs_a_pass_nothing_is_drafted() -> None:
    proposal = ExpectedSpeed(CostCurve({1: 1.0, 2: 2.0})).propose(Record(0.95), Prospect(0, 20, 0.95), 0.0)
    assert proposal.length == 0
    assert proposal.rate == pytest.approx(1.0)


def test_dear_drafting_makes_drafts_shorter() -> None:
    rule, record, prospect = ExpectedSpeed(CostCurve({1: 1.0, 17: 1.5})), Record(0.8), Prospect(0, 16, 0.8)
    lengths = [rule.propose(record, prospect, cost).length for cost in (0.0, 0.1, 0.3, 2.0)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[2] > lengths[3] == 0


def test_a_limit_beyond_the_records_depths_is_weighed_all_the_same() -> None:
    proposal = ExpectedSpeed(CostCurve({1: 1.0, 200: 1.0})).propose(Record(0.95), Prospect(0, 100, 0.95), 0.0)
    assert 1 <= proposal.length <= 100
