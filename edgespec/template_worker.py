"""Renders a chat template in a child process, where it can do no harm and take no more than its share.

Jinja's sandbox keeps a template from Python's insides, but a template of one line can still loop for ever or fill the
memory. A process can be limited in both, and ended; nothing in this one can.

Run as `python -m edgespec.template_worker SECONDS`, it reads one JSON object a line (first the template, then
conversations) and answers each within that time by one line: {"text": …}, or {"error": …}.
"""

from __future__ import annotations

import datetime
import json
import signal
import sys
from collections.abc import Mapping
from typing import Any

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from edgespec.models.errors import reason
from edgespec.models.limits import limit_memory, limit_time

MAX_RENDERED_LENGTH = 1 << 26
_MEMORY_LIMIT = 1 << 30
_LONGEST_ERROR = 500


def compiled(source: str) -> jinja2.Template:
    """The template, in an environment with what chat templates expect to find.

    Raises:
        Exception: syntax errors, but also whatever Python's compiler says of what it can't nest or read.
    """
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals |= {"raise_exception": _raise, "strftime_now": _strftime_now}
    environment.filters["tojson"] = _tojson
    return environment.from_string(source)


def rendered(template: jinja2.Template, values: Mapping[str, Any]) -> str:
    parts, length = [], 0
    for part in template.generate(values):
        parts.append(part)
        length += len(part)
        if length > MAX_RENDERED_LENGTH:
            raise ValueError("it writes more than 64 MiB")
    return "".join(parts)


def _raise(message: object) -> None:
    raise jinja2.exceptions.TemplateRuntimeError(str(message))


def _strftime_now(format_: str) -> str:
    return datetime.datetime.now().strftime(format_)


def _tojson(value: Any, indent: int | None = None, **_options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _complaint(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "it takes too much memory"
    return reason(error, _LONGEST_ERROR)


def main() -> None:
    """The child's loop; ends with its input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends an answer, not this process
    limit_memory(_MEMORY_LIMIT)
    seconds = float(sys.argv[1])
    template: jinja2.Template | None = None
    for line in sys.stdin.buffer:
        limit_time(seconds)
        try:
            request = json.loads(line)
            if template is None:
                template = compiled(request["template"])
                answer = {"text": ""}
            else:
                answer = {"text": rendered(template, request)}
        except Exception as error:  # whatever a foreign template may do: type errors, overflow, recursion, memory
            answer = {"error": _complaint(error)}
        # escaped, so that half a surrogate pair that a template made can't break the pipe
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()
        limit_time(0)


if __name__ == "__main__":
    main()
