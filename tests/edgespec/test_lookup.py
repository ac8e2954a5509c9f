"""What prompt lookup drafts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.drafters.base import Context
from edgespec.drafters.lookup import MIN_MATCH, Lookup
from edgespec.sampling import Sampler, SamplingOptions

SAMPLER = Sampler(SamplingOptions())


def make_context(tokens: list[int], prompt_length: int | None = None, prediction: tuple[int, ...] = ()) -> Context:
    return Context(tokens, len(tokens) if prompt_length is None else prompt_length, SAMPLER, prediction=prediction)


def drafted(drafter: Lookup, context: Context, budget: int = 16) -> list[int]:
    draft = drafter.draft(context, budget)
    assert draft.q == (None,) * len(draft.tree)  # chosen, not drawn
    assert draft.tree.parents == tuple(range(-1, len(draft.tree) - 1))  # a chain
    return list(draft.tree.tokens)


def possible_continuations(tokens: list[int], prompt_end: int) -> tuple[int, list[list[int]]]:
    """Length of the longest suffix found earlier, and what follows each of its occurrences, looped at the end."""
    for length in range(len(tokens) - 1, 0, -1):
        suffix = tokens[len(tokens) - length :]
        ends = [end for end in range(length, len(tokens)) if tokens[end - length : end] == suffix]
        if ends:
            return length, [(tokens[end:] * prompt_end)[:prompt_end] for end in ends]
    return 0, []


def test_what_followed_the_same_words_before_is_drafted() -> None:
    context = make_context([1, 2, 3, 4, 9, 1, 2])
    assert drafted(Lookup(), context, 3) == [3, 4, 9]


def test_the_longest_match_wins() -> None:
    # "2 3" was followed by 8 lately, but "1 2 3" by 7
    assert drafted(Lookup(), make_context([1, 2, 3, 7, 5, 2, 3, 8, 6, 1, 2, 3]), 1) == [7]


def test_of_equal_matches_the_latest_is_continued() -> None:
    assert drafted(Lookup(), make_context([1, 2, 7, 0, 1, 2, 8, 5, 1, 2]), 1) == [8]


def test_a_short_match_drafts_nothing() -> None:
    assert MIN_MATCH == 2
    for tokens in ([1], [1, 2, 3, 4], [1, 2, 3, 1], [5, 1, 6, 1]):
        context = make_context(tokens)
        drafter = Lookup()
        assert drafter.prospect(context) is None
        assert drafted(drafter, context) == []


def test_a_loop_is_continued_past_the_end_of_the_text() -> None:
    context = make_context([7, 1, 2, 3, 1, 2, 3, 1, 2])
    assert drafted(Lookup(), context, 10) == [3, 1, 2, 3, 1, 2, 3, 1, 2, 3]


def test_one_token_over_and_over_is_continued() -> None:
    assert drafted(Lookup(), make_context([4] * 5), 7) == [4] * 7


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(1, 20))
def test_each_draft_follows_an_occurrence_of_the_longest_match(tokens: list[int], budget: int) -> None:
    drafter, context = Lookup(), make_context(tokens[:1], 1)
    for token in tokens[1:]:
        context.tokens.append(token)
        length, continuations = possible_continuations(context.tokens, budget)
        draft, prospect = drafted(drafter, context, budget), drafter.prospect(context)
        if length < MIN_MATCH:
            assert draft == []
            assert prospect is None
        else:
            assert draft in continuations
            assert prospect is not None
            assert 1 <= prospect.limit <= 2 * length


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(1, 39))
def test_tokens_taken_at_once_and_one_by_one_lead_to_the_same_draft(tokens: list[int], start: int) -> None:
    whole = drafted(Lookup(), make_context(tokens))
    drafter, context = Lookup(), make_context(tokens[:start])
    for token in tokens[start:]:
        drafter.prospect(context)
        context.tokens.append(token)
    assert drafted(drafter, context) == whole


# ---- limits


def test_a_draft_never_exceeds_its_budget() -> None:
    drafter, context = Lookup(), make_context([1, 2, 3] * 30)
    for budget in (0, 1, 2, 5, 40):
        assert len(drafted(drafter, context, budget)) == budget


def test_the_limit_is_twice_the_match() -> None:
    prospect = Lookup().prospect(make_context([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3]))
    assert prospect is not None
    assert prospect.limit == 6


def test_the_limit_is_bounded_however_long_the_match() -> None:
    prospect = Lookup().prospect(make_context(list(range(200)) * 2))
    assert prospect is not None
    assert prospect.limit == 64


def test_longer_matches_promise_more() -> None:
    groups, priors = [], []
    for length in (2, 3, 4, 6, 9, 16, 40):
        prospect = Lookup().prospect(make_context([*range(100), *range(length)]))
        assert prospect is not None
        groups.append(prospect.group)
        priors.append(prospect.prior)
        assert prospect.setup_seconds == 0
    assert groups == [0, 1, 2, 3, 4, 5, 5]
    assert priors == sorted(priors)
    assert all(0 < prior < 1 for prior in priors)


# ---- predictions

PREDICTION = tuple(range(50, 80))


def test_the_prediction_is_drafted_from_its_start_at_the_first_token() -> None:
    drafter, context = Lookup(), make_context([1, 2, 3], prediction=PREDICTION)
    prospect = drafter.prospect(context)
    assert prospect is not None
    assert prospect.limit >= 8
    assert drafted(drafter, context, 8) == list(PREDICTION[:8])


def test_a_prediction_of_one_token_is_drafted() -> None:
    drafter, context = Lookup(), make_context([1, 2, 3], prediction=(9,))
    prospect = drafter.prospect(context)
    assert prospect is not None
    assert prospect.limit == 1
    assert drafted(drafter, context) == [9]


def test_the_prediction_is_followed_as_the_answer_grows() -> None:
    drafter, context = Lookup(), make_context([1, 2, 3], prediction=PREDICTION)
    context.tokens.extend(PREDICTION[:5])
    assert drafted(drafter, context, 6) == list(PREDICTION[5:11])


def test_the_prediction_is_found_again_after_a_divergence() -> None:
    drafter, context = Lookup(), make_context([1, 2, 3], prediction=PREDICTION)
    context.tokens.extend([*PREDICTION[:5], 200])
    assert drafter.prospect(context) is None
    assert drafted(drafter, context) == []
    context.tokens.extend(PREDICTION[10:12])
    assert drafted(drafter, context, 6) == list(PREDICTION[12:18])


def test_a_prediction_is_not_matched_against_the_prompt() -> None:
    # the prompt holds the prediction's middle; the answer still begins at the prediction's start
    drafter, context = Lookup(), make_context([1, *PREDICTION[10:15]], prediction=PREDICTION)
    assert drafted(drafter, context, 4) == list(PREDICTION[:4])


def test_a_prediction_is_not_drafted_beyond_its_end() -> None:
    drafter, context = Lookup(), make_context([1, 2, 3], prediction=PREDICTION)
    context.tokens.extend(PREDICTION[:-2])
    assert drafted(drafter, context, 10) == list(PREDICTION[-2:])


def test_of_prediction_and_text_the_longer_match_is_continued() -> None:
    # the answer's "50 51" matches the prediction by two tokens and the prompt by three
    drafter = Lookup()
    context = make_context([9, 50, 51, 7, 8, 9], prediction=PREDICTION)
    context.tokens.extend([50, 51])
    assert drafted(drafter, context, 1) == [7]
    # and by as many where the prompt has another token before
    context = make_context([9, 50, 51, 7, 8, 6], prediction=PREDICTION)
    context.tokens.extend([50, 51])
    assert drafted(drafter, context, 1) == [52]


def test_without_a_prediction_the_first_token_is_drafted_from_the_prompt_alone() -> None:
    assert drafted(Lookup(), make_context([1, 2, 3])) == []


# ---- contexts


def test_a_new_context_starts_afresh() -> None:
    drafter = Lookup()
    assert drafted(drafter, make_context([1, 2, 3, 4, 1, 2]), 2) == [3, 4]
    other = make_context([5, 6, 1, 2])
    assert drafter.prospect(other) is None
    assert drafted(drafter, other) == []
    assert drafted(drafter, make_context([8, 9, 7, 8, 9]), 1) == [7]


def test_a_new_context_brings_its_own_prediction() -> None:
    drafter = Lookup()
    assert drafted(drafter, make_context([1, 2], prediction=(5, 6, 7)), 3) == [5, 6, 7]
    assert drafted(drafter, make_context([1, 2])) == []
    assert drafted(drafter, make_context([1, 2], prediction=(8, 9)), 3) == [8, 9]


def test_an_equal_but_shorter_context_is_not_taken_for_the_old_one() -> None:
    drafter, tokens = Lookup(), [1, 2, 3, 1, 2]
    assert drafted(drafter, make_context(list(tokens)), 1) == [3]
    assert drafted(drafter, make_context(list(tokens[:3]))) == []
    assert drafted(drafter, make_context(list(tokens)), 1) == [3]


def test_a_closed_drafter_forgets_its_text() -> None:
    drafter, context = Lookup(), make_context([1, 2, 3, 1, 2])
    assert drafted(drafter, context, 1) == [3]
    drafter.close()
    assert drafted(drafter, context, 1) == [3]
