"""A Jinja environment for templates from strangers: nothing of Python within reach, and bounds on time and memory.

Jinja's own sandbox keeps attributes and calls safe, but a template of one line can still loop for ever or double a text
forty times. So every loop and macro counts a step, and every text that an expression makes is measured.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_STEPS = 100_000
MAX_LENGTH = 1 << 24
"""Characters, or items of a list, that one expression may make."""
_MAX_NUMBER = 10_000
"""Of an argument that may be a width: `'x'.center(10**12)` must not be tried before it is measured."""

_steps: ContextVar[int] = ContextVar("steps")


def step() -> str:
    """Count one turn of a loop or call of a macro."""
    taken = _steps.get(0) + 1
    _steps.set(taken)
    if taken > MAX_STEPS:
        raise SecurityError(f"it takes more than {MAX_STEPS} steps")
    return ""


def joined(*parts: Any) -> str:
    """What the operator `~` does."""
    return str(measured("".join(map(str, parts))))


def measured(value: Any) -> Any:
    if isinstance(value, (str, bytes, list, tuple)) and len(value) > MAX_LENGTH:
        raise SecurityError(f"it makes a text of more than {MAX_LENGTH} characters")
    return value


class _Counting(NodeTransformer):
    """Puts a `step()` into each loop and macro, and replaces `~` by `joined`."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - Jinja's naming
        return self._counted(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._counted(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        return self._counted(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("joined", node.nodes, node.lineno)

    def _counted(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("step", [], node.lineno), lineno=node.lineno))
        counted: nodes.Node = node
        return counted


def _call(name: str, arguments: list[nodes.Expr], lineno: int) -> nodes.Call:
    return nodes.Call(nodes.ImportedName(f"{__name__}.{name}"), arguments, [], None, None, lineno=lineno)


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment. Compile with `compiled`, render inside of `fresh_budget`."""

    intercepted_binops = frozenset(["*", "**", "+", "%"])

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        for name in ("center", "format", "indent", "wordwrap"):
            self.filters[name] = _bounded(self.filters[name])

    def compiled(self, source: str) -> jinja2.Template:
        tree = _Counting().visit(self.parse(source))
        return self.template_class.from_code(self, self.compile(tree), self.make_globals(None))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        texts = isinstance(left, (str, bytes, Sequence)) or isinstance(right, (str, bytes, Sequence))
        if operator == "**" or (texts and operator == "*"):
            raise SecurityError(f"{operator!r} on these values isn't allowed in a chat template")
        if texts and operator == "%":
            _check_widths((left,), {})
        return measured(super().call_binop(context, operator, left, right))

    def call(self, context: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if isinstance(getattr(function, "__self__", None), (str, bytes)):
            _check_widths(args, kwargs)
        return measured(super().call(context, function, *args, **kwargs))


def _check_widths(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for argument in (*args, *kwargs.values()):
        if isinstance(argument, int) and abs(argument) > _MAX_NUMBER:
            raise SecurityError(f"a text of the width {argument} isn't allowed in a chat template")
        if isinstance(argument, str) and re.search(r"%[^a-zA-Z%]*\d{5}", argument):
            raise SecurityError("a format with so large a width isn't allowed in a chat template")


def _bounded(filter_: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(filter_)  # Jinja's marks on the function too
    def checked(*args: Any, **kwargs: Any) -> Any:
        _check_widths(args, kwargs)
        return measured(filter_(*args, **kwargs))

    return checked


def fresh_budget() -> None:
    """Begin counting steps anew."""
    _steps.set(0)
