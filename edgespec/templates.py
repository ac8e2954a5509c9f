"""Chat templates: Jinja text from a model file, so run in a sandbox."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from edgespec.models.errors import ModelFileError, UsageError

from .sandbox import Sandbox, fresh_budget

Message = Mapping[str, Any]
MAX_TEMPLATE_LENGTH = 1 << 18
MAX_RENDERED_LENGTH = 1 << 26

# What most models without a template of their own were trained on.
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class ChatTemplate:
    """A compiled template.

    Args:
        source: the template's text.
        origin: where it comes from, for error messages.
        bos, eos: text of the tokens that templates may name.
    """

    def __init__(self, source: str, origin: str, bos: str = "", eos: str = "") -> None:
        self._origin, self._names = origin, {"bos_token": bos, "eos_token": eos}
        if len(source) > MAX_TEMPLATE_LENGTH:
            raise ModelFileError(f"{origin}: the chat template has {len(source)} characters; at most 262144 are run")
        environment = Sandbox()
        environment.globals |= {"raise_exception": _raise, "strftime_now": _strftime_now}
        environment.filters["tojson"] = _tojson
        try:
            self._template = environment.compiled(source)
        except Exception as error:  # syntax, but also what Python's compiler can't nest or read
            raise ModelFileError(f"{origin}: the chat template can't be read: {error}; use --raw") from None

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """The prompt for a conversation.

        Raises:
            UsageError: the template refuses these messages, or fails on them.
        """
        for message in messages:
            if not isinstance(message.get("role"), str) or not isinstance(message.get("content"), str):
                raise UsageError("each message needs a 'role' and a 'content', both text")
        fresh_budget()
        try:
            parts, length = [], 0
            for part in self._template.generate(
                messages=list(messages), add_generation_prompt=add_generation_prompt, tools=None, **self._names
            ):
                parts.append(part)
                length += len(part)
                if length > MAX_RENDERED_LENGTH:
                    raise UsageError(f"{self._origin}: the chat template writes more than 64 MiB")
            return "".join(parts)
        except UsageError:
            raise
        except Exception as error:  # whatever a foreign template may do: type errors, overflow, recursion
            raise UsageError(f"{self._origin}: the chat template fails on this conversation: {error}") from None


def _raise(message: str) -> None:
    raise jinja2.exceptions.TemplateRuntimeError(message)


def _strftime_now(format_: str) -> str:
    return datetime.datetime.now().strftime(format_)


def _tojson(value: Any, indent: int | None = None, **_options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
