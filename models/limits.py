"""Limits that a child process sets itself before it touches what a stranger made."""

from __future__ import annotations

import signal


def limit_memory(size: int) -> None:
    """Refuse this process more address space than `size` bytes, and core files. Without effect on Windows."""
    try:
        import resource
    except ImportError:
        return
    for what, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, size)):
        try:
            _, hard = resource.getrlimit(what)
            resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
        except (ValueError, OSError):  # a system that doesn't know this limit
            pass


def limit_time(seconds: float) -> None:
    """End this process after so many seconds, whatever it does then and whoever waits for it; 0: never.

    Without effect on Windows, so a parent should watch the time as well.
    """
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)
