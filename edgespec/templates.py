"""Chat templates: Jinja text from a model file, so rendered by a process that can't do harm."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from edgespec.models.checks import check_kind, check_text, shown
from edgespec.models.errors import ModelFileError, RuntimeFailure, UsageError

Message = Mapping[str, Any]
MAX_TEMPLATE_LENGTH = 1 << 18
_TIME_LIMIT_S = 10.0

# What most models without a template of their own were trained on.
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class ChatTemplate:
    """A template, compiled and rendered by a child process that starts at once and ends with this object.

    Args:
        source: the template's text.
        origin: where it comes from, for error messages.
        bos, eos: text of the tokens that templates may name.
    """

    def __init__(self, source: str, origin: str, bos: str = "", eos: str = "") -> None:
        self._origin, self._names = origin, {"bos_token": bos, "eos_token": eos}
        if len(source) > MAX_TEMPLATE_LENGTH:
            raise ModelFileError(f"{origin}: the chat template has {len(source)} characters; at most 262144 are run")
        self._source = source
        self._lock = threading.Lock()
        self._worker: _Worker | None = _Worker(source)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """The prompt for a conversation.

        Raises:
            UsageError: the template refuses these messages, or fails on them.
            ModelFileError: it isn't a template.
        """
        conversation = [_checked(message) for message in messages]
        values = {"messages": conversation, "add_generation_prompt": add_generation_prompt, "tools": None}
        try:
            request = json.dumps(values | self._names).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"a message holds what JSON can't: {error}") from None
        with self._lock:
            answer = self._ask(request)
        if "error" in answer:
            raise UsageError(f"{self._origin}: the chat template fails on this conversation: {answer['error']}")
        return str(answer["text"])

    def _ask(self, request: bytes) -> dict[str, str]:
        # one that was ended, by its own limits or from outside, is replaced
        if self._worker is None or self._worker.ended:
            self._worker = _Worker(self._source)
        worker, well = self._worker, False
        try:
            refusal = worker.refusal()
            if refusal is not None:
                raise ModelFileError(f"{self._origin}: the chat template can't be read: {refusal}; use --raw")
            answer = worker.ask(request)
            well = "died" not in answer
        finally:
            if not well:  # an interrupt, too, leaves an answer in the pipe that nobody waits for
                worker.end()
                self._worker = None
        return answer if well else {"error": answer["died"]}

    def close(self) -> None:
        """End the child process. A later `render` would start another one."""
        with self._lock:
            if self._worker is not None:
                self._worker.end()
            self._worker = None


class _Worker:
    """The child process, and questions to it."""

    def __init__(self, source: str) -> None:
        # -P: nothing of the folder that we happen to be in is imported; a session of its own: Ctrl-C isn't for it
        command = [sys.executable, "-P", "-m", f"{__package__}.template_worker", str(_TIME_LIMIT_S)]
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            raise RuntimeFailure(f"no process for the chat template can be started: {error}") from None
        self.end = weakref.finalize(self, _end, self._process)
        self._known: str | None = None
        self._compiled = False
        self._send(json.dumps({"template": source}).encode() + b"\n")

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def refusal(self) -> str | None:
        """Why the template can't be compiled; None where it can."""
        if not self._compiled:
            answer = self._receive()
            self._known = answer.get("error", answer.get("died"))
            self._compiled = True
        return self._known

    def ask(self, request: bytes) -> dict[str, str]:
        """The child's answer, or {"died": why} where it has none."""
        self._send(request)
        return self._receive()

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except (OSError, ValueError):  # it died; `_receive` finds out
            pass

    def _receive(self) -> dict[str, str]:
        assert self._process.stdout is not None
        # the child ends itself in time where the system lets it; this is for the others
        timer = threading.Timer(2 * _TIME_LIMIT_S, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if line.endswith(b"\n"):
            answer: dict[str, str] = json.loads(line)
            return answer
        status = self._process.wait()
        if not hasattr(signal, "SIGALRM") or status in (-signal.SIGALRM, -signal.SIGKILL):
            return {"died": f"it takes more than {_TIME_LIMIT_S:g} s"}
        return {"died": f"its process ended with status {status}"}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # what was still to be flushed can't be
                stream.close()


def _checked(message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise UsageError(f"a message is {shown(message)}; a mapping with 'role' and 'content' is needed")
    for name in ("role", "content"):
        if not isinstance(message.get(name), str):
            raise UsageError("each message needs a 'role' and a 'content', both text")
        check_text(f"a message's {name}", message[name])
    for name in message:
        check_kind("a message's key", name, str)
    return dict(message)
