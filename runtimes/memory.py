"""How much memory this process has used."""

from __future__ import annotations

import contextlib
import ctypes
import sys


def peak_memory_bytes() -> int:
    """The largest resident size of this process so far; 0 where the system doesn't tell (Windows)."""
    on_linux = _high_water_mark()
    if on_linux is not None:
        return on_linux
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _high_water_mark() -> int | None:
    """From /proc: what `getrusage` gives on Linux includes what the parent had used when it started this process."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def give_back_memory() -> None:
    """Return to the system what was freed: after loading, glibc keeps some 10 MiB that may never be used again."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
