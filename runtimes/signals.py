"""Signals that must wait: an exception that a handler raises inside of a callback from C is lost."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_DEFERRED = [number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]


@contextlib.contextmanager
def deferred_signals() -> Iterator[list[int]]:
    """Hold back interrupts and terminations, and deliver them when the block is left.

    Yields the ones that have come, so that the block can end early. Python runs handlers in the main thread alone: in
    another one this does nothing.
    """
    arrived: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield arrived
        return
    before = {}
    for number in _DEFERRED:
        if signal.getsignal(number) is not None:  # None: set by somebody outside of Python
            before[number] = signal.signal(number, lambda number, _frame: arrived.append(number))
    try:
        yield arrived
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in arrived[:1]:
            signal.raise_signal(number)
