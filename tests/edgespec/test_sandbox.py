from __future__ import annotations

import time

import pytest

from edgespec.models.errors import UsageError
from edgespec.templates import ChatTemplate

MESSAGES = [{"role": "user", "content": "hi"}]


def render(source: str) -> str:
    return ChatTemplate(source, "model.gguf").render(MESSAGES)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "{% set ns = namespace(s='aa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s='aa') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{{ 'a' * 1000000000 }}",
        "{{ 2 ** 1000000 }}",
        "{{ 'a'.center(1000000000000) }}",
        "{{ 'a'|center(1000000000000) }}",
        "{{ 'a\nb'|indent(1000000000000) }}",
        "{{ '%1000000000d' % 3 }}",
        "{{ '%1000000000d'|format(3) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(3) }}",
    ],
)
def test_a_hostile_template_ends_in_an_error_soon(source: str) -> None:
    started = time.perf_counter()
    with pytest.raises(UsageError, match=r"model\.gguf: the chat template fails"):
        render(source)
    assert time.perf_counter() - started < 30  # seconds, not hours


def test_ordinary_expressions_mean_what_they_do_in_jinja() -> None:
    assert (
        render("{{ 3 * 4 }} {{ 7 % 3 }} {{ 'a' ~ 3 ~ none }} {{ 'a' + 'b' }} {{ [1] + [2] }}")
        == "12 1 a3None ab [1, 2]"
    )
    assert (
        render("{% for m in messages %}{{ loop.index }}{{ m['role'] }}{{ m.content|upper }}{% endfor %}") == "1userHI"
    )
    assert render("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(1) }}{{ f('y') }}") == "<1><y>"
    assert render("{{ 'a\nb'|indent(2) }}|{{ '%03d'|format(7) }}|{{ '%s' % 'x' }}") == "a\n  b|007|x"


def test_each_rendering_has_its_own_budget() -> None:
    template = ChatTemplate("{% for i in range(60000) %}{% endfor %}ok", "model.gguf")
    assert [template.render(MESSAGES) for _ in range(3)] == ["ok"] * 3
