"""How much memory this process has used."""

from __future__ import annotations

import sys


def peak_memory_bytes() -> int:
    """The largest resident size of this process so far; 0 where the system doesn't tell (Windows)."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
