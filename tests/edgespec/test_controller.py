"""The controller on simulated machines and drafters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from edgespec.controller import PLAIN, Controller
from edgespec.costs import SIZES, CostCurve
from edgespec.draft_length import ExpectedSpeed, FixedLength, RecentAcceptance
from edgespec.drafters.base import NO_DRAFT, Context, Draft, Outcome, Prospect
from edgespec.runtimes.tree import TokenTree
from edgespec.sampling import Sampler, SamplingOptions

Cost = Callable[[int], float]


class SimulatedDrafter:
    """Drafts whose tokens are accepted with a chance that may change over time.

    Args:
        acceptance: of each token, by how many tokens were generated.
        cost: seconds for a drafted token.
        setup: seconds before the first draft.
    """

    def __init__(
        self,
        acceptance: Callable[[int], float] = lambda _done: 0.8,
        *,
        name: str = "simulated",
        limit: int = 16,
        prior: float = 0.5,
        cost: float = 0.0,
        setup: float = 0.0,
    ) -> None:
        self.name, self.acceptance, self.cost, self.setup = name, acceptance, cost, setup
        self._limit, self._prior = limit, prior
        self.closed = 0

    def prospect(self, context: Context) -> Prospect | None:
        return Prospect(0, self._limit, self._prior, self.setup)

    def draft(self, context: Context, budget: int) -> Draft:
        return NO_DRAFT

    def observe(self, outcome: Outcome) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


class SilentDrafter(SimulatedDrafter):
    """Never has anything to offer."""

    def prospect(self, context: Context) -> Prospect | None:
        return None


@dataclass
class Run:
    """What happened."""

    tokens: int = 0
    seconds: float = 0.0
    passes: list[tuple[int, str, int, int]] = field(default_factory=list)
    """For each pass: tokens before it, who drafted, tokens drafted and accepted."""

    def budgets(self, start: int = 0) -> list[int]:
        return [drafted for done, _, drafted, _ in self.passes if done >= start]


def make_context() -> Context:
    return Context([1], 1, Sampler(SamplingOptions()))


def machine(slope: float) -> Cost:
    """One token takes a second, each further one `slope` seconds."""
    return lambda n: 1 + slope * (n - 1)


def controller_of(drafters: list[SimulatedDrafter], believed: Cost) -> Controller:
    curve = CostCurve({n: believed(n) for n in SIZES})
    controller = Controller(drafters, ExpectedSpeed(curve), curve)
    for drafter in drafters:
        controller.expect_drafting(drafter.name, drafter.cost)
    return controller


def simulate(
    drafters: list[SimulatedDrafter],
    cost: Cost,
    tokens: int,
    *,
    believed: Cost | None = None,
    controller: Controller | None = None,
    seed: int = 0,
    room: int = 32,
) -> Run:
    """Generate on a machine where a pass over n tokens takes `cost(n)` seconds."""
    rng, run, context = np.random.default_rng(seed), Run(), make_context()
    controller = controller or controller_of(drafters, believed or cost)
    while run.tokens < tokens:
        choice = controller.choose(context, room)
        name, drafted, accepted, draft_seconds = "plain", 0, 0, 0.0
        if choice.drafter is not None:
            drafter = next(d for d in drafters if d is choice.drafter)
            name, drafted = drafter.name, choice.budget
            assert 1 <= drafted <= room
            while accepted < drafted and rng.random() < drafter.acceptance(run.tokens):
                accepted += 1
            draft_seconds, drafter.setup = drafted * drafter.cost + drafter.setup, 0.0
        tree = TokenTree.chain([7] * drafted).rooted(1)
        outcome = Outcome(name, choice.group, tree, list(range(accepted + 1)), draft_seconds, cost(drafted + 1))
        controller.observe(outcome)
        run.passes.append((run.tokens, name, drafted, accepted))
        run.tokens += accepted + 1
        run.seconds += outcome.draft_seconds + outcome.target_seconds
    return run


# ---- choices over time


@pytest.mark.parametrize("prior", [0.15, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_on_a_flat_machine_good_drafts_become_long(prior: float, seed: int) -> None:
    run = simulate([SimulatedDrafter(lambda _: 0.9, prior=prior)], machine(0.0), 500, seed=seed)
    assert np.mean(run.budgets(300)) > 12
    assert run.seconds < run.tokens / 4


@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("prior", [0.15, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_where_each_token_costs_a_pass_it_ends_up_plain_and_loses_under_5_percent(
    acceptance: float, prior: float, seed: int
) -> None:
    run = simulate([SimulatedDrafter(lambda _: acceptance, prior=prior)], machine(1.0), 500, seed=seed)
    late = run.budgets(250)
    assert sum(budget > 0 for budget in late) <= 0.08 * len(late)
    assert run.seconds - run.tokens < 0.05 * run.tokens  # plain decoding takes a second for each token


@pytest.mark.parametrize("slope", [0.2, 0.5, 1.0])
def test_drafts_that_are_always_refused_cost_under_5_percent(slope: float) -> None:
    run = simulate([SimulatedDrafter(lambda _: 0.0, prior=0.9)], machine(slope), 500)
    assert run.seconds - run.tokens < 0.05 * run.tokens
    # rare probes go on
    assert 0 < sum(budget > 0 for budget in run.budgets(250)) < 0.25 * len(run.budgets(250))


def test_a_high_prior_does_not_keep_refused_drafts_alive_where_they_are_cheap() -> None:
    # a draft token costs 5 % of a pass, and none is ever accepted
    run = simulate([SimulatedDrafter(lambda _: 0.0, prior=0.9)], machine(0.05), 2000)
    late = run.budgets(1000)
    assert sum(budget > 0 for budget in late) < 0.6 * len(late)
    assert run.seconds - run.tokens < 0.035 * run.tokens  # 2 % are allowed, and something at the start


@pytest.mark.parametrize("prior", [0.15, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_acceptance_that_becomes_high_later_is_noticed(prior: float, seed: int) -> None:
    drafter = SimulatedDrafter(lambda done: 0.0 if done < 300 else 0.95, prior=prior)
    run = simulate([drafter], machine(0.15), 700, seed=seed)
    before = [budget for done, _, budget, _ in run.passes if 150 <= done < 300]
    assert sum(budget > 0 for budget in before) < 0.3 * len(before)
    assert np.mean(run.budgets(400)) > 4
    assert sum(budget > 0 for budget in run.budgets(400)) > 0.9 * len(run.budgets(400))


def test_acceptance_that_becomes_low_later_is_noticed() -> None:
    drafter = SimulatedDrafter(lambda done: 0.95 if done < 300 else 0.0)
    run = simulate([drafter], machine(0.15), 800)
    assert np.mean([budget for done, _, budget, _ in run.passes if 150 <= done < 300]) > 4
    late = run.budgets(500)
    assert sum(budget > 0 for budget in late) < 0.2 * len(late)


def test_moderate_acceptance_on_a_rising_curve_gives_moderate_lengths_and_gains() -> None:
    run = simulate([SimulatedDrafter(lambda _: 0.7)], machine(0.2), 500)
    assert 1 <= np.mean(run.budgets(250)) <= 5
    assert run.seconds < 0.85 * run.tokens


def test_a_curve_that_was_measured_too_flat_is_corrected_until_plain_decoding_wins() -> None:
    # the curve says that more tokens cost nearly nothing; in truth each one costs a whole pass
    run = simulate([SimulatedDrafter(lambda _: 0.5)], machine(1.0), 2000, believed=machine(0.02))
    late = run.budgets(1000)
    assert sum(budget > 0 for budget in late) < 0.2 * len(late)


def test_a_curve_that_was_measured_too_steep_is_corrected_by_probes() -> None:
    run = simulate([SimulatedDrafter(lambda _: 0.95)], machine(0.05), 3000, believed=machine(1.0))
    late = run.budgets(2000)
    assert sum(budget > 0 for budget in late) > 0.8 * len(late)


def test_a_machine_that_slows_down_as_a_whole_changes_no_choice() -> None:
    slower = simulate([SimulatedDrafter(lambda _: 0.8)], lambda n: 3 * machine(0.1)(n), 1000, believed=machine(0.1))
    assert slower.seconds < 0.6 * 3 * slower.tokens


# ---- costs of drafting and of getting ready


def test_a_setup_that_never_pays_is_declined() -> None:
    run = simulate([SimulatedDrafter(lambda _: 0.9, prior=0.9, setup=1000.0)], machine(0.05), 500)
    assert run.budgets() == [0] * 500
    assert run.seconds == pytest.approx(500)


def test_a_setup_that_pays_is_taken() -> None:
    drafter = SimulatedDrafter(lambda _: 0.9, prior=0.9, setup=5.0)
    run = simulate([drafter], machine(0.05), 500)
    assert drafter.setup == 0.0
    assert run.seconds < 0.5 * run.tokens


def test_setup_seconds_are_not_taken_for_the_cost_of_drafting() -> None:
    drafter = SimulatedDrafter(lambda _: 0.9, prior=0.9, setup=20.0, cost=0.02)
    curve = CostCurve({n: machine(0.05)(n) for n in SIZES})
    controller = Controller([drafter], ExpectedSpeed(curve), curve)  # what drafting costs is seen, not told
    run = simulate([drafter], machine(0.05), 200, controller=controller)
    with_setup = next(i for i, (_, _, drafted, _) in enumerate(run.passes) if drafted)
    # all but the plain passes that look how fast the machine is
    plain = sum(drafted == 0 for _, _, drafted, _ in run.passes[with_setup:])
    assert plain <= len(run.passes[with_setup:]) / 16


def test_drafting_that_is_known_to_be_dear_is_declined() -> None:
    run = simulate([SimulatedDrafter(lambda _: 0.9, prior=0.9, cost=2.0)], machine(0.0), 500)
    assert run.seconds - run.tokens < 0.05 * run.tokens


def test_drafting_that_turns_out_dear_is_given_up() -> None:
    drafter = SimulatedDrafter(lambda _: 0.9, prior=0.9, cost=2.0)
    curve = CostCurve({n: 1.0 for n in SIZES})
    controller = Controller([drafter], ExpectedSpeed(curve), curve)
    run = simulate([drafter], machine(0.0), 500, controller=controller)
    assert sum(budget > 0 for budget in run.budgets(100)) < 0.05 * len(run.budgets(100))


def test_what_was_measured_of_drafting_is_not_replaced_by_an_expectation() -> None:
    drafter = SimulatedDrafter(prior=0.9)
    controller = controller_of([drafter], machine(0.05))
    controller.expect_drafting(drafter.name, 1000.0)
    assert controller.choose(make_context(), 8).drafter is drafter


# ---- single choices


def test_without_room_the_pass_is_plain() -> None:
    drafter = SimulatedDrafter(prior=0.99)
    curve = CostCurve({1: 1.0, 16: 1.0})
    for rule in (ExpectedSpeed(curve), FixedLength(4), RecentAcceptance()):
        assert Controller([drafter], rule, curve).choose(make_context(), 0) == PLAIN


@pytest.mark.parametrize("room", [1, 2, 5])
def test_no_more_is_drafted_than_there_is_room(room: int) -> None:
    drafter = SimulatedDrafter(lambda _: 1.0, prior=0.99)
    curve = CostCurve({1: 1.0, 16: 1.0})
    for rule in (ExpectedSpeed(curve), FixedLength(8), RecentAcceptance()):
        choice = Controller([drafter], rule, curve).choose(make_context(), room)
        assert choice.drafter is drafter
        assert choice.budget == room
    assert max(simulate([drafter], machine(0.0), 100, room=room).budgets()) == room


def test_without_drafters_all_passes_are_plain() -> None:
    run = simulate([], machine(0.1), 50)
    assert run.budgets() == [0] * 50


def test_a_drafter_with_nothing_to_offer_leaves_the_pass_plain() -> None:
    assert controller_of([SilentDrafter()], machine(0.1)).choose(make_context(), 8) == PLAIN


def test_a_prospect_of_no_tokens_leaves_the_pass_plain() -> None:
    assert controller_of([SimulatedDrafter(limit=0)], machine(0.1)).choose(make_context(), 8) == PLAIN


def test_of_two_drafters_the_better_one_is_used() -> None:
    worse = SimulatedDrafter(lambda _: 0.4, name="worse")
    better = SimulatedDrafter(lambda _: 0.9, name="better")
    for drafters in ([worse, better], [better, worse]):
        run = simulate(drafters, machine(0.1), 500)
        late = [name for done, name, _, _ in run.passes if done >= 250]
        assert late.count("better") > 0.9 * len(late)


def test_a_drafter_that_cannot_draft_now_leaves_the_pass_to_another() -> None:
    able = SimulatedDrafter(prior=0.9)
    controller = controller_of([SilentDrafter(name="silent"), able], machine(0.05))
    assert controller.choose(make_context(), 8).drafter is able


def test_groups_of_a_drafter_are_counted_apart() -> None:
    class TwoGroups(SimulatedDrafter):
        group = 0

        def prospect(self, context: Context) -> Prospect | None:
            return Prospect(self.group, 8, 0.5)

    drafter = TwoGroups()
    controller, context = controller_of([drafter], machine(0.1)), make_context()
    for i in range(60):
        drafter.group = i % 2
        choice = controller.choose(context, 8)
        assert choice.group == (drafter.group if choice.drafter else 0)
        accepted = choice.budget if drafter.group else 0
        tree = TokenTree.chain([7] * choice.budget).rooted(1)
        path = list(range(accepted + 1))
        controller.observe(Outcome("simulated", choice.group, tree, path, 0.0, machine(0.1)(choice.budget + 1)))
    drafter.group = 1
    assert controller.choose(context, 8).budget == 8
    drafter.group = 0
    assert controller.choose(context, 8).budget < 8


def test_under_a_rule_without_costs_the_first_drafter_that_can_is_used() -> None:
    first, second = SimulatedDrafter(name="first"), SimulatedDrafter(name="second")
    choice = Controller([SilentDrafter(name="silent"), first, second], FixedLength(4), None).choose(make_context(), 8)
    assert (choice.drafter, choice.budget) == (first, 4)


def test_a_rule_without_costs_needs_no_curve() -> None:
    drafter = SimulatedDrafter(lambda _: 0.0)
    controller = Controller([drafter], RecentAcceptance(), None)
    run = simulate([drafter], machine(1.0), 30, controller=controller)
    assert run.budgets()[0] == 5
    assert run.budgets()[-1] == 1


def test_passes_correct_the_curve() -> None:
    curve = CostCurve({1: 1.0, 16: 2.0})
    controller = Controller([], ExpectedSpeed(curve), curve)
    for _ in range(200):
        controller.observe(Outcome("plain", 0, TokenTree.chain([1]), [0], 0.0, 2.0))
    assert curve(1) == pytest.approx(2.0, rel=0.02)
    assert curve(16) > 2.5
