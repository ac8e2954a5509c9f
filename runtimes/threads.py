"""A thread with a stack of its own size."""

from __future__ import annotations

import threading
from collections.abc import Callable

_lock = threading.Lock()
"""Python's stack size is one setting for all threads that start."""


def start_with_stack(run: Callable[[], None], size: int) -> threading.Thread:
    """Start a daemon thread with a stack of about `size` bytes, or what the system allows of it."""
    thread = threading.Thread(target=run, daemon=True)
    with _lock:
        before = threading.stack_size()
        while True:
            try:
                threading.stack_size(-(-size // 4096) * 4096)
                thread.start()
                return thread
            except (ValueError, RuntimeError):  # not a size that there can be, or no room for it
                if size <= 1 << 20:
                    raise
                size //= 2
            finally:
                threading.stack_size(before)
