from __future__ import annotations

import subprocess
import sys

from edgespec.runtimes.memory import peak_memory_bytes


def test_memory_that_was_used_and_freed_counts() -> None:
    before = peak_memory_bytes()
    block = bytearray(200 << 20)
    block[::4096] = b"x" * len(block[::4096])
    del block
    assert before > 1 << 20
    assert peak_memory_bytes() >= 200 << 20


def test_what_the_parent_used_does_not_count() -> None:
    block = bytearray(300 << 20)
    block[::4096] = b"x" * len(block[::4096])
    code = "from edgespec.runtimes.memory import peak_memory_bytes; print(peak_memory_bytes())"
    child = int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert child < 200 << 20
