from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import edgespec
from edgespec.loading import load
from edgespec.model import Model


@pytest.fixture(scope="module")
def model(tiny: Path) -> Iterator[Model]:
    with load(tiny, strategy="plain") as loaded:
        yield loaded


def test_events_are_those_of_the_ordinary_iteration(model: Model) -> None:
    async def answer() -> list[edgespec.Event]:
        return [event async for event in edgespec.stream(model.generate, "Hello", max_tokens=20)]

    events = asyncio.run(answer())
    assert "".join(e.text for e in events) == model.complete("Hello", max_tokens=20).text
    assert events[-1].finish_reason == "length"


def test_the_event_loop_goes_on_meanwhile(model: Model) -> None:
    async def answer() -> int:
        ticks, done = 0, False

        async def tick() -> None:
            nonlocal ticks
            while not done:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        async for _ in edgespec.stream(model.generate, "Hello", max_tokens=20):
            pass
        done = True
        await ticking
        return ticks

    assert asyncio.run(answer()) > 20


def test_leaving_early_and_cancelling_free_the_model(model: Model) -> None:
    async def leave() -> None:
        async with contextlib.aclosing(edgespec.stream(model.generate, "Hello")) as events:
            async for event in events:
                if event.text:
                    break

    async def cancelled() -> None:
        task = asyncio.create_task(collect())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def collect() -> None:
        async for _ in edgespec.stream(model.generate, "Hello", temperature=1.0):
            pass

    wanted = model.complete("Hello", max_tokens=10).tokens
    for leaving in (leave, cancelled):
        asyncio.run(leaving())
        end = time.monotonic() + 10
        while True:  # the step that was being computed may still end
            try:
                assert model.complete("Hello", max_tokens=10).tokens == wanted
                break
            except edgespec.UsageError:
                assert time.monotonic() < end
                time.sleep(0.01)
    assert not [t for t in threading.enumerate() if t.name.startswith("edgespec") and t.is_alive()]


def test_errors_come_out_of_the_loop(model: Model) -> None:
    async def wrong() -> None:
        async for _ in edgespec.stream(model.generate, "Hello", colour="red"):
            pass

    with pytest.raises(edgespec.UsageError, match="colour"):
        asyncio.run(wrong())


def test_a_cancel_of_the_callers_own_is_heard_and_left_alone(model: Model) -> None:
    async def answer(cancel: threading.Event) -> str | None:
        reason = None
        async for event in edgespec.stream(model.generate, "Hello", max_tokens=5, cancel=cancel):
            reason = event.finish_reason or reason
        return reason

    cancel = threading.Event()
    assert asyncio.run(answer(cancel)) == "length"
    assert not cancel.is_set()
    cancel.set()
    assert asyncio.run(answer(cancel)) == "cancelled"
