"""Limits of a child process, on a child process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest


def run(code: str) -> subprocess.CompletedProcess[str]:
    head = "from edgespec.models.limits import limit_memory, limit_time\n"
    return subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="macOS doesn't enforce RLIMIT_AS")
def test_memory_beyond_the_limit_is_refused() -> None:
    assert "MemoryError" in run("limit_memory(1 << 30); bytearray(1 << 31)").stderr
    assert run("limit_memory(1 << 30); bytearray(1 << 28)").returncode == 0


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no alarm")
def test_a_process_ends_in_time_even_within_one_long_call() -> None:
    assert run("limit_time(0.3); 'a'.join(map(str, iter(int, 1)))").returncode == -signal.SIGALRM


def test_a_limit_can_be_lifted() -> None:
    assert run("import time; limit_time(0.2); limit_time(0); time.sleep(0.5)").returncode == 0
