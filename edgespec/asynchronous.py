"""Events for `async for`: each step is computed in a thread of its own, so that an event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .events import Event


async def stream(
    generate: Callable[..., Generator[Event, None, None]], *args: Any, **options: Any
) -> AsyncGenerator[Event, None]:
    """The events of `generate(*args, **options)`, such as `model.generate` or `conversation.say`.

    Leaving the loop early, or cancelling the task, ends the answer after the step that is being computed. As with every
    asynchronous generator, `contextlib.aclosing` makes that happen at once.

    Raises:
        EdgespecError: as `generate` does, at the first step.
    """
    cancel = options["cancel"] = options.get("cancel") or threading.Event()
    loop = asyncio.get_running_loop()
    # one thread: what closes the generator waits there for the step that is being computed
    thread = ThreadPoolExecutor(1, thread_name_prefix="edgespec")
    events: Generator[Event, None, None] | None = None
    try:
        events = await loop.run_in_executor(thread, lambda: generate(*args, **options))
        while (event := await loop.run_in_executor(thread, next, events, None)) is not None:
            yield event
        events = None
    finally:
        if events is not None:
            cancel.set()
            thread.submit(events.close)
        thread.shutdown(wait=False)
