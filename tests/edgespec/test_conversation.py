from __future__ import annotations

import threading
from pathlib import Path

import pytest

import edgespec
from edgespec.loading import load
from edgespec.model import Model, collect


def alone(model: Model, *texts: str) -> list[str]:
    """What a conversation says when nothing else goes on."""
    with model.conversation() as conversation:
        return [collect(conversation.say(text, max_tokens=12)).text for text in texts]


@pytest.mark.parametrize("strategy", ["plain", "auto"])
def test_conversations_in_turn_and_in_between_say_what_each_would_alone(
    tiny: Path, tiny_draft: Path, strategy: str
) -> None:
    with load(tiny, draft=tiny_draft, strategy=strategy, sequences=3, ctx=512) as model:
        wanted = [alone(model, "Hello", "And now?"), alone(model, "Count to ten.", "Go on.")]
        with model.conversation() as one, model.conversation() as other:
            first = [collect(c.say(t, max_tokens=12)) for c, t in ((one, "Hello"), (other, "Count to ten."))]
            # step by step, one after the other
            answers = [one.say("And now?", max_tokens=12), other.say("Go on.", max_tokens=12)]
            texts = ["", ""]
            while answers[0] or answers[1]:
                for i, events in enumerate(answers):
                    event = next(events, None) if events else None
                    if event is None:
                        answers[i] = None  # type: ignore[call-overload]
                    else:
                        texts[i] += event.text
            assert [[first[0].text, texts[0]], [first[1].text, texts[1]]] == wanted
            assert [m["role"] for m in one.messages] == ["user", "assistant"] * 2
            assert one.messages[3]["content"] == texts[0]


def test_the_second_turn_computes_only_what_is_new(tiny: Path) -> None:
    with load(tiny, strategy="plain", sequences=2, ctx=512) as model, model.conversation("Be brief.") as conversation:
        first = collect(conversation.say("Hello", max_tokens=8)).stats
        model.complete("something else in between", max_tokens=8)
        second = collect(conversation.say("Again", max_tokens=8)).stats
        assert second.cached_tokens >= first.prompt_tokens - 1
        assert conversation.messages[0] == {"role": "system", "content": "Be brief."}


def test_an_answer_that_was_cut_short_counts_as_far_as_it_came(tiny: Path) -> None:
    with load(tiny, strategy="plain", sequences=2, ctx=512) as model, model.conversation() as conversation:
        events = conversation.say("Hello")
        text = next(events).text + next(events).text
        events.close()
        assert conversation.messages[-1] == {"role": "assistant", "content": text}
        with pytest.raises(edgespec.ContextFull):
            conversation.say("long " * 5000)
        assert len(conversation.messages) == 2


def test_places_are_limited_and_freed(tiny: Path) -> None:
    with load(tiny, strategy="plain", sequences=2, ctx=64) as model:
        for _ in range(3):
            with model.conversation(), pytest.raises(edgespec.ContextFull, match="sequences"):
                model.conversation()
        conversation = model.conversation()
    with pytest.raises(edgespec.RuntimeFailure, match="closed"):
        conversation.say("too late")
    with pytest.raises(edgespec.RuntimeFailure, match="closed"):
        model.conversation()


def test_conversations_of_several_threads_do_not_disturb_each_other(tiny: Path, tiny_draft: Path) -> None:
    questions = ["Hello", "Count to ten.", "Why?"]
    with load(tiny, draft=tiny_draft, strategy="draft", draft_length=3, sequences=4, ctx=256) as model:
        wanted = [alone(model, question, "Go on.") for question in questions]
        said: dict[int, list[str]] = {}

        def talk(i: int) -> None:
            said[i] = alone(model, questions[i], "Go on.")

        threads = [threading.Thread(target=talk, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [said[i] for i in range(3)] == wanted


@pytest.mark.parametrize("text", [None, 3, "\ud800", b"x"])
def test_what_is_said_must_be_text(tiny: Path, text: object) -> None:
    with load(tiny, strategy="plain", sequences=2, ctx=64) as model, model.conversation() as conversation:
        with pytest.raises(edgespec.UsageError, match="what is said"):
            conversation.say(text)  # type: ignore[arg-type]
        with pytest.raises(edgespec.UsageError, match="system"):
            model.conversation(text) if text is not None else model.conversation(5)  # type: ignore[arg-type]
