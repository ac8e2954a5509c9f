from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgespec.dialogue import Dialogue
from edgespec.events import Event
from edgespec.loading import load
from edgespec.models.errors import ContextFull, UsageError

OPTIONS = {"max_tokens": 6, "temperature": 0.0}


@pytest.fixture
def dialogue(tiny: Path) -> Iterator[Dialogue]:
    with load(tiny, ctx=256, strategy="plain") as model:
        yield Dialogue(model, "Be brief.", OPTIONS)


def said(dialogue: Dialogue, text: str) -> str:
    return "".join(event.text for event in dialogue.ask(text))


def roles(dialogue: Dialogue) -> str:
    return "".join(message["role"][0] for message in dialogue.messages)


def test_each_answer_sees_what_was_said_before(dialogue: Dialogue) -> None:
    first = said(dialogue, "Hello")
    assert dialogue.answer == first
    said(dialogue, "And now?")
    assert roles(dialogue) == "suaua"
    assert dialogue.stats is not None
    # the cache holds the first turn: only what is new was computed
    assert dialogue.stats.cached_tokens > dialogue.stats.prompt_tokens / 2
    expected = dialogue.model.chat(dialogue.messages[:-1], **OPTIONS)
    assert dialogue.answer == expected.text


def test_an_answer_that_is_cut_short_counts_as_far_as_it_came(dialogue: Dialogue) -> None:
    events = dialogue.ask("Hello")
    text = next(events).text
    events.close()
    assert dialogue.messages[-1] == {"role": "assistant", "content": text}
    events = dialogue.ask("More")
    events.close()  # before it began
    assert roles(dialogue) == "sua"
    said(dialogue, "More")
    assert roles(dialogue) == "suaua"


def test_undo_and_clear_take_back_whole_turns(dialogue: Dialogue) -> None:
    for text in ("one", "two"):
        said(dialogue, text)
    assert dialogue.undo() == "two"
    assert roles(dialogue) == "sua"
    dialogue.clear()
    assert roles(dialogue) == "s"
    with pytest.raises(UsageError, match="nothing was said"):
        dialogue.undo()
    dialogue.system = ""
    assert dialogue.messages == []


def test_the_oldest_turns_go_when_the_context_is_full_and_not_at_each_turn(dialogue: Dialogue) -> None:
    dialogue.set("max_tokens", 20)
    forgotten = []
    for number in range(12):
        said(dialogue, f"Tell me about the number {number} please")
        forgotten.append(dialogue.forgotten)
        assert dialogue.messages[0]["role"] == "system"
        assert roles(dialogue)[1:3] == "ua"
        assert dialogue.stats is not None
        assert dialogue.stats.prompt_tokens + 20 <= 256
    assert sum(forgotten) > 0
    assert sum(count > 0 for count in forgotten) < 5  # half of the context is made free at once
    before = list(dialogue.messages)
    with pytest.raises(ContextFull, match="shorten it"):
        dialogue.ask("long " * 300)
    assert dialogue.messages == before


def test_options_are_checked_when_they_are_set(dialogue: Dialogue) -> None:
    dialogue.set("temperature", 0.5)
    dialogue.set("max_tokens", None)
    assert dialogue.options == {"temperature": 0.5}
    for name, value in (("temperature", -1), ("top_p", 2), ("nonsense", 1), ("seed", "x")):
        with pytest.raises(UsageError):
            dialogue.set(name, value)
    assert dialogue.options == {"temperature": 0.5}


def test_what_is_saved_is_loaded(dialogue: Dialogue, tmp_path: Path) -> None:
    said(dialogue, "Hello 🧑‍🚀")
    messages = list(dialogue.messages)
    dialogue.save(tmp_path / "talk.json")
    dialogue.clear()
    dialogue.load(tmp_path / "talk.json")
    assert dialogue.messages == messages


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"{}", b"\xff", b"[" * 9999, b'{"format": 2, "messages": []}', b'{"format": 1, "messages": 3}',
        *(json.dumps({"format": 1, "messages": [message]}).encode() for message in (
            3, {}, {"role": "user"}, {"role": "tool", "content": "x"}, {"role": "user", "content": 3},
            {"role": "user", "content": "x", "extra": 1},
        )),
        b'{"format": 1, "messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]}',
        b'{"format": 1, "messages": [{"role": "user", "content": "\\ud800"}]}',
    ],
)  # fmt: skip
def test_other_files_are_refused_and_change_nothing(dialogue: Dialogue, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "talk.json").write_bytes(content)
    before = list(dialogue.messages)
    with pytest.raises(UsageError, match=r"talk\.json"):
        dialogue.load(tmp_path / "talk.json")
    assert dialogue.messages == before
    with pytest.raises(UsageError, match="a regular file"):
        dialogue.load(tmp_path)


def test_the_speed_up_is_what_plain_passes_took(dialogue: Dialogue) -> None:
    assert dialogue.speed_up() is None
    said(dialogue, "Hello")
    assert dialogue.stats is not None
    assert dialogue.stats.plain_pass_s > 0
    # every pass was a plain one
    assert dialogue.speed_up() == pytest.approx(dialogue.stats.tokens_per_second * dialogue.stats.plain_pass_s)


def test_strategies_change_between_answers(tiny: Path, tiny_draft: Path) -> None:
    with load(tiny, draft=tiny_draft, ctx=512, strategy="plain", draft_length=2) as model:
        dialogue = Dialogue(model, None, {"max_tokens": 24, "temperature": 0.0})
        plain = said(dialogue, "a b c d e f g")
        for strategy in ("draft", "lookup", "auto", "draft", "plain"):
            dialogue.clear()
            model.use(strategy)
            assert said(dialogue, "a b c d e f g") == plain
            assert dialogue.stats is not None
            assert dialogue.stats.strategy == strategy
            assert dialogue.stats.drafted_tokens > 0 or strategy in ("lookup", "plain")
        with pytest.raises(UsageError, match="choose from"):
            model.use("best")
        events: Iterator[Event] = dialogue.ask("more")
        next(events)
        with pytest.raises(UsageError, match="under way"):
            model.use("draft")
    with load(tiny, ctx=128, strategy="plain") as model:
        with pytest.raises(UsageError, match="--draft"):
            model.use("draft")
        assert model.strategy == "plain"
