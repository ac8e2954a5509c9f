"""The library on real model files."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import edgespec
from edgespec.convert.pack import write_pack
from edgespec.loading import load
from edgespec.model import Model

QUESTIONS = ["Why is the sky blue?", "Count from one to ten.", "Write a Python function that adds two numbers."]


@pytest.fixture(scope="module")
def plain(tiny: Path) -> Iterator[Model]:
    with load(tiny, strategy="plain") as model:
        yield model


def answers(model: Model, **options: Any) -> list[tuple[int, ...]]:
    return [model.complete(question, max_tokens=60, **options).tokens for question in QUESTIONS]


@pytest.mark.parametrize("length", ["auto", "practice", 1, 3, 8])
@pytest.mark.parametrize("strategy", ["lookup", "draft", "auto"])
def test_greedy_answers_are_those_of_plain_decoding(
    tiny: Path, tiny_draft: Path, plain: Model, strategy: str, length: str | int
) -> None:
    with load(tiny, draft=tiny_draft, strategy=strategy, draft_length=length) as model:
        assert answers(model) == answers(plain)


@pytest.mark.parametrize("branches", [2, 4])
def test_greedy_answers_of_trees_are_those_of_plain_decoding(
    tiny: Path, tiny_draft: Path, plain: Model, branches: int
) -> None:
    with load(tiny, draft=tiny_draft, strategy="draft", draft_length=6, draft_branches=branches) as model:
        assert answers(model) == answers(plain)


def test_greedy_answers_with_penalties_are_those_of_plain_decoding(tiny: Path, tiny_draft: Path, plain: Model) -> None:
    options = {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "logit_bias": {300: 4.0}}
    with load(tiny, draft=tiny_draft, strategy="draft", draft_length=4) as model:
        assert answers(model, **options) == answers(plain, **options)


@pytest.mark.parametrize("branches", [1, 3])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_model_that_drafts_for_itself_is_always_right(tiny: Path, temperature: float, branches: int) -> None:
    with load(tiny, draft=tiny, strategy="draft", draft_length=4, draft_branches=branches, threads=1) as model:
        stats = model.complete(QUESTIONS[0], max_tokens=100, temperature=temperature, seed=3).stats
    if branches == 1:
        # what rounding between pass sizes may cost: the tiny model's is 1e-3 of its logits' range
        assert stats.accepted_tokens >= 0.98 * stats.drafted_tokens
    else:
        assert stats.tokens_per_pass > 2


def test_the_default_model_speaks(smollm: Path) -> None:
    with load(smollm, strategy="plain", ctx=256) as model:
        answer = model.complete("The capital of France is", raw=True, max_tokens=3)
    assert "Paris" in answer.text


def test_greedy_answers_on_the_default_model(smollm: Path) -> None:
    results = []
    for strategy, length in (("plain", "auto"), ("lookup", 4), ("draft", 3)):
        with load(smollm, draft=smollm, strategy=strategy, draft_length=length, ctx=512) as model:
            results.append(model.complete("List three colours.", max_tokens=40))
    assert results[0].tokens == results[1].tokens == results[2].tokens
    assert results[2].stats.accepted_tokens == results[2].stats.drafted_tokens > 0


def test_drawn_tokens_have_the_same_frequencies_with_and_without_a_draft(tiny: Path, tiny_draft: Path) -> None:
    """Two-sample chi-square over the second token of many answers."""
    counts = []
    for strategy in ("plain", "draft"):
        with load(tiny, draft=tiny_draft, strategy=strategy, draft_length=3, ctx=64, threads=1) as model:
            said = [
                model.complete([100, 200], temperature=1.0, top_k=4, seed=seed, max_tokens=2).tokens[-1]
                for seed in range(800)
            ]
        counts.append(np.bincount(said, minlength=1024))
    from scipy import stats

    table = np.array(counts)
    common = table.sum(axis=0) >= 20
    table = np.column_stack([table[:, common], table[:, ~common].sum(axis=1)])
    assert stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue > 0.001


def test_a_prediction_is_drafted_and_changes_nothing(tiny: Path, plain: Model) -> None:
    expected = plain.complete(QUESTIONS[0], max_tokens=60)
    text = b"".join(map(plain.runtime.vocabulary.piece, expected.tokens)).decode("utf-8", "ignore")
    with load(tiny, strategy="lookup", draft_length=8) as model:
        answer = model.complete(QUESTIONS[0], max_tokens=60, prediction=text)
        wrong = model.complete(QUESTIONS[0], max_tokens=60, prediction="nothing of the kind " * 5)
    assert answer.tokens == wrong.tokens == expected.tokens
    assert answer.stats.accepted_tokens > wrong.stats.accepted_tokens


def test_a_pack_is_loaded_with_its_draft_and_template(tiny: Path, tiny_draft: Path, tmp_path: Path) -> None:
    write_pack(tmp_path / "pack", tiny, tiny_draft, template="{{ messages[0].content }}!")
    with load(tmp_path / "pack", strategy="draft", draft_length=2) as model:
        events = list(model.generate("Hi", max_tokens=3))
        assert events[-1].stats is not None
        assert events[-1].stats.prompt_tokens == len(model.runtime.vocabulary.encode("Hi!", special=True, add_bos=True))


def test_a_draft_with_another_vocabulary_is_refused_and_the_difference_named(tiny: Path, tiny_other: Path) -> None:
    with pytest.raises(edgespec.VocabularyMismatch, match=r"1006 of 1024 tokens differ \(17: "):
        load(tiny, draft=tiny_other)


def test_a_draft_strategy_without_a_draft_says_what_to_give(tiny: Path) -> None:
    with pytest.raises(edgespec.UsageError, match="--draft"):
        load(tiny, strategy="draft")


@pytest.mark.parametrize(
    ("option", "value"),
    [("strategy", "magic"), ("runtime", "abacus"), ("draft_length", "long"), ("draft_length", 0), ("ctx", 0),
     ("colour", "red"), ("draft_length", 33)],
)  # fmt: skip
def test_bad_options_are_named(tiny: Path, option: str, value: Any) -> None:
    with pytest.raises(edgespec.UsageError, match=option.replace("_", ".")):
        load(tiny, **{option: value})


def test_chat_goes_on_from_the_turn_before(tiny: Path) -> None:
    with load(tiny, strategy="lookup") as model:
        messages = [{"role": "user", "content": "Hello"}]
        first = model.chat(messages, max_tokens=10)
        messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "Again"}]
        second = model.chat(messages, max_tokens=10)
    assert second.stats.cached_tokens >= first.stats.prompt_tokens - 1


def test_a_context_beyond_what_the_model_was_trained_for_is_noticed(tiny: Path) -> None:
    notices: list[str] = []
    load(tiny, strategy="plain", ctx=4096, notify=notices.append).close()
    assert "2048" in notices[0]


def test_step_times_are_measured_once(tiny: Path) -> None:
    notices: list[str] = []
    for _ in range(2):
        load(tiny, strategy="lookup", ctx=128, cache_type="f32", notify=notices.append).close()
    assert len([n for n in notices if "measuring" in n]) == 1


# ---- arguments of the wrong kind


@pytest.mark.parametrize(
    ("option", "value"),
    [("model", 3), ("model", ""), ("model", "~no-such-user-here/x"), ("draft", 3.5), ("draft", b"x"),
     ("strategy", None),
     ("strategy", ["lookup"]), ("runtime", 1), ("ctx", "64"), ("ctx", 64.5), ("ctx", True), ("ctx", -1),
     ("draft_length", 3.5), ("draft_length", "3.5"), ("draft_length", None), ("draft_length", True),
     ("draft_length", "9" * 5000), ("draft_branches", -1), ("draft_branches", 0), ("draft_branches", 17),
     ("draft_branches", "2"), ("bit_exact", "yes"), ("notify", 3), ("threads", 1.5), ("flash_attention", 3.5)],
)  # fmt: skip
def test_loading_arguments_of_the_wrong_kind_are_named(tiny: Path, option: str, value: Any) -> None:
    with pytest.raises(edgespec.UsageError, match=option.replace("_", ".")) as caught:
        load(**{"model": tiny, option: value})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("option", "value"),
    [("max_tokens", float("nan")), ("max_tokens", "3"), ("max_tokens", 2.5), ("stop", 3), ("stop", [3]), ("stop", b"x"),
     ("stop", ["\ud800"]), ("prediction", 3), ("prediction", None), ("prediction", "\ud800"), ("deadline_s", "1"),
     ("deadline_s", float("nan")), ("cancel", True), ("on_prefill", 3), ("logit_bias", [1]), ("logit_bias", {"a": 1.0}),
     ("logit_bias", {1: "a"}), ("logit_bias", {1: None}), ("temperature", "hot"), ("seed", 1.5), ("top_k", 2.5)],
)  # fmt: skip
def test_generation_options_of_the_wrong_kind_are_named(plain: Model, option: str, value: Any) -> None:
    with pytest.raises(edgespec.UsageError, match=option):
        plain.complete("x", **{option: value})


@pytest.mark.parametrize("prompt", [None, 3, b"bytes", [1.5], ["a"], "\ud800", "half \udcff a byte", object()])
def test_prompts_of_the_wrong_kind_are_usage_errors(plain: Model, prompt: Any) -> None:
    with pytest.raises(edgespec.UsageError, match="prompt"):
        plain.complete(prompt)


@pytest.mark.parametrize("messages", [None, "text", {"role": "user", "content": "x"}, 3, ["text"], [None]])
def test_conversations_of_the_wrong_kind_are_usage_errors(plain: Model, messages: Any) -> None:
    with pytest.raises(edgespec.UsageError, match="message"):
        plain.chat(messages)


def test_messages_from_a_generator_are_all_read(plain: Model) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    assert plain.chat((m for m in messages), max_tokens=5).tokens == plain.chat(messages, max_tokens=5).tokens


def test_notices_that_cannot_be_delivered_are_dropped(tiny: Path) -> None:
    def broken(_line: str) -> None:
        raise BrokenPipeError

    load(tiny, strategy="plain", ctx=4096, notify=broken).close()


def test_a_closed_model_says_so(tiny: Path) -> None:
    model = load(tiny, strategy="plain")
    model.close()
    model.close()
    for use in (
        lambda: model.complete("x"), lambda: model.complete([1], max_tokens=0),
        lambda: model.chat([{"role": "user", "content": "x"}]),
    ):  # fmt: skip
        with pytest.raises(edgespec.RuntimeFailure, match="closed"):
            use()


def test_a_model_can_be_closed_while_another_thread_generates(tiny: Path, tiny_draft: Path) -> None:
    for strategy in ("plain", "draft"):
        model = load(tiny, draft=tiny_draft, strategy=strategy, draft_length=4)
        began, ended = threading.Event(), []

        def generate(model: Model = model, began: threading.Event = began, ended: list[Any] = ended) -> None:
            try:
                for _ in model.generate(QUESTIONS[0], temperature=1.0):
                    began.set()
            except edgespec.RuntimeFailure as error:
                ended.append(str(error))

        thread = threading.Thread(target=generate)
        thread.start()
        assert began.wait(30)
        model.close()
        thread.join(30)
        assert ended == ["this model was closed"]


def test_a_template_that_cannot_be_read_spares_raw_prompts(tiny: Path, tmp_path: Path) -> None:
    write_pack(tmp_path / "pack", tiny, template="{% for %}")
    with load(tmp_path / "pack", strategy="plain") as model:
        assert model.complete("x", raw=True, max_tokens=2).tokens
        with pytest.raises(edgespec.ModelFileError, match="--raw"):
            model.complete("x", max_tokens=2)


def test_extreme_options_give_no_warnings(plain: Model) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for options in (
            {"temperature": 5e-324}, {"temperature": 1e308}, {"temperature": 1.0, "repetition_penalty": 1e-3},
            {"temperature": 1.0, "presence_penalty": -1e6, "frequency_penalty": 1e6, "logit_bias": {5: -1e6, 6: 1e6}},
            {"temperature": 1.0, "top_k": 1, "top_p": 5e-324, "min_p": 1.0, "typical_p": 5e-324},
            {"repetition_penalty": 1e3, "logit_bias": {5: float("-inf")}},
        ):  # fmt: skip
            assert len(plain.complete([1, 2, 3], max_tokens=4, **options).tokens) > 0


def test_numpys_small_integers_mean_what_they_say(tiny: Path, plain: Model) -> None:
    """Negating them wraps around."""
    options = {"max_tokens": 30, "temperature": 0.8, "seed": 3, "top_k": 40, "repetition_penalty": 1.2}
    wanted = plain.complete("x", penalty_window=64, **options).tokens
    for kind in (np.uint8, np.uint64, np.int16):
        given = {name: kind(value) for name, value in options.items() if isinstance(value, int)}
        assert plain.complete("x", penalty_window=kind(64), **{**options, **given}).tokens == wanted
    load(tiny, strategy="plain", ctx=np.uint8(200), threads=np.int8(1)).close()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value"),
    [("ctx", 10**5000), ("draft_length", 10**5000), ("draft_branches", -(10**5000)), ("threads", 10**5000),
     ("on_load", 5), ("model", "x" * 5000), ("model", "\ud800"), ("draft_length", np.array([1, 2])),
     ("draft_length", np.array(["auto"]))],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
def test_odder_loading_arguments_are_errors_of_ours(tiny: Path, option: str, value: Any) -> None:
    with pytest.raises(edgespec.EdgespecError):
        load(**{"model": tiny, option: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [("seed", -(10**5000)), ("temperature", 10**400), ("presence_penalty", -(10**5000)), ("logit_bias", {1: 10**400}),
     ("logit_bias", {10**5000: 1.0}), ("deadline_s", 10**400), ("deadline_s", np.array([1.0, 2.0])),
     ("logit_bias", {1: np.array([1.0, 2.0])})],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
def test_odder_generation_options_are_errors_of_ours(plain: Model, option: str, value: Any) -> None:
    with pytest.raises(edgespec.UsageError, match=option):
        plain.complete("x", **{option: value})


def test_fractions_are_numbers(plain: Model) -> None:
    assert plain.complete("x", temperature=Fraction(1, 2), seed=1, max_tokens=3).tokens


def test_more_text_than_any_context_holds_is_refused_before_it_is_tokenized(plain: Model) -> None:
    with pytest.raises(edgespec.ContextFull, match="50000000 bytes"):
        plain.complete("x" * 50_000_000, raw=True)
    assert plain.complete("x", prediction="x" * 50_000_000, max_tokens=2).tokens


def test_messages_may_be_any_mapping(plain: Model) -> None:
    assert plain.chat([MappingProxyType({"role": "user", "content": "x"})], max_tokens=2).tokens


@pytest.mark.usefixtures("interruptible")
def test_interrupts_at_any_moment_leave_a_model_that_answers_rightly(tiny: Path, tiny_draft: Path) -> None:
    """Real interrupts, as Ctrl-C gives them, at random times of short answers."""
    prompts = ["the quick brown fox " * 20, "the quick brown fox " * 8 + "x", "hello"]
    rng = np.random.default_rng(1)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for options in ({"strategy": "plain"}, {"strategy": "draft", "draft_length": 4, "draft_branches": 3}):
            with load(tiny, draft=tiny_draft, threads=1, **options) as model:
                wanted = [model.complete(prompt, raw=True, max_tokens=5).tokens for prompt in prompts]
                for _ in range(150):
                    with contextlib.suppress(KeyboardInterrupt):
                        try:
                            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 6e-3))
                            model.complete(prompts[rng.integers(3)], raw=True, max_tokens=5)
                        finally:
                            signal.setitimer(signal.ITIMER_REAL, 0)
                    index = int(rng.integers(3))
                    assert model.complete(prompts[index], raw=True, max_tokens=5).tokens == wanted[index]
    finally:
        signal.signal(signal.SIGALRM, before)
