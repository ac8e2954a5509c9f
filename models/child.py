"""Work done in a child process: what llama.cpp and transformers do to files can crash, hang or fill memory.

A child reports in JSON, one object a line, on its standard output; everything that libraries print there goes to
standard error. It ends when its parent does, however that ends: then its standard input closes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import IO, Any

from .errors import EdgespecError, ModelFileError, reason

Report = Callable[..., None]
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
_NOISE = ("Traceback", "  ", "DEBUG", "INFO", "WARNING")


def run_child(module: str, arguments: list[str], heard: Callable[[dict[str, Any]], None] | None = None) -> None:
    """Run a module of ours in a child process until it ends.

    Args:
        heard: called with each object that it reports.

    Raises:
        ModelFileError: it failed or crashed; says why.
    """
    command = [sys.executable, "-P", "-m", module, *arguments]
    error: str | None = None
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=os.environ | _OFFLINE
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                message = json.loads(line)
                if "error" in message:
                    error = message["error"]
                elif heard is not None:
                    heard(message)
            code = process.wait()
        finally:  # an interrupt, too
            process.kill()
            process.communicate()
        if error is not None:
            raise ModelFileError(error)
        if code:
            raise ModelFileError(f"{module.rpartition('.')[2]} ended early ({_last_words(log, code)})")


def _last_words(log: IO[bytes], code: int) -> str:
    log.seek(0)
    lines = [line for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(_NOISE)]
    return reason(telling[-1]) if telling else f"signal {-code}" if code < 0 else f"exit code {code}"


def work_as_child(work: Callable[[Report], None]) -> int:
    """A child's main function: run `work` with a function that reports keywords to the parent; the exit code."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def report(**message: Any) -> None:
        out.write(json.dumps(message) + "\n")

    try:
        work(report)
    except EdgespecError as error:
        report(error=str(error))
        return 1
    except (Exception, SystemExit) as error:  # libraries raise anything, and some exit
        report(error=reason(f"{type(error).__name__}: {error}", 400))
        return 1
    return 0


def _end_with_parent() -> None:
    while os.read(0, 1):  # not through sys.stdin, whose lock a daemon thread would hold at the end
        pass
    os._exit(1)
