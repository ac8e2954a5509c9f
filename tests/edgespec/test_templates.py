"""Chat templates: what they render, and what they can't do."""

from __future__ import annotations

import datetime
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from edgespec import templates
from edgespec.models.errors import EdgespecError, ModelFileError, UsageError
from edgespec.templates import CHATML, MAX_TEMPLATE_LENGTH, ChatTemplate

HELLO = [{"role": "user", "content": "Hello"}]
ORIGIN = "model.gguf"


def render(source: str, messages: list[Any] | None = None, **options: Any) -> str:
    return ChatTemplate(source, ORIGIN, bos="<s>", eos="</s>").render(
        HELLO if messages is None else messages, **options
    )


# ---- rendering


def test_chatml_renders_a_conversation() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi {{ there }}"},
        {"role": "assistant", "content": "Hello <|im_end|>"},
    ]
    assert render(CHATML, messages) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi {{ there }}<|im_end|>\n"
        "<|im_start|>assistant\nHello <|im_end|><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_the_generation_prompt_can_be_left_out() -> None:
    assert render(CHATML, add_generation_prompt=False) == "<|im_start|>user\nHello<|im_end|>\n"


def test_a_template_as_models_carry_it_renders() -> None:
    source = """{%- if messages[0]['role'] == 'system' -%}
    {{- '<|im_start|>' + messages[0]['content'] + '\\n' -}}
{%- endif -%}
{% for message in messages %}
    {%- set who = message.role | capitalize %}
    {{- bos_token if loop.first }}{{ who }}: {{ message['content'] | trim }}{{ eos_token }}
{% endfor %}
{%- if tools %}never{% endif -%}
"""
    assert render(source, [{"role": "user", "content": " Hi "}]) == "<s>User: Hi</s>\n"


def test_lines_that_hold_only_a_block_leave_no_trace() -> None:
    assert render("a\n    {% if true %}\nb\n    {% endif %}\nc") == "a\nb\nc"


def test_text_is_not_escaped() -> None:
    assert render("{{ messages[0].content }}", [{"role": "user", "content": "<b> & \"q\" 'é'"}]) == "<b> & \"q\" 'é'"


def test_tojson_writes_plain_json() -> None:
    assert render("{{ {'a': 'é<b>', 'n': [1, true, none]} | tojson }}") == '{"a": "é<b>", "n": [1, true, null]}'
    assert render("{{ {'a': 1} | tojson(indent=2) }}") == '{\n  "a": 1\n}'
    assert render("{{ messages | tojson }}") == '[{"role": "user", "content": "Hello"}]'
    assert render("{{ [1] | tojson(ensure_ascii=False, sort_keys=True) }}") == "[1]"


def test_strftime_now_gives_the_date() -> None:
    before = datetime.datetime.now().strftime("%d %b %Y")
    rendered = render('{{ strftime_now("%d %b %Y") }}')
    assert rendered in (before, datetime.datetime.now().strftime("%d %b %Y"))


def test_loops_can_be_left_and_continued() -> None:
    source = (
        "{% for i in range(10) %}{% if i == 1 %}{% continue %}{% endif %}"
        "{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}"
    )
    assert render(source) == "023"


def test_namespaces_and_macros_work() -> None:
    source = (
        "{% macro line(role) %}[{{ role }}]{% endmacro %}{% set ns = namespace(n=0) %}"
        "{% for message in messages %}{% set ns.n = ns.n + 1 %}{{ line(message.role) }}{% endfor %}{{ ns.n }}"
    )
    assert render(source, HELLO * 3) == "[user][user][user]3"


def test_numbers_can_be_multiplied() -> None:
    assert render("{{ 6 * 7 }}") == "42"


def test_one_template_renders_many_conversations() -> None:
    template = ChatTemplate(CHATML, ORIGIN)
    first = template.render(HELLO)
    template.render([{"role": "user", "content": "other"}])
    assert template.render(HELLO) == first


# ---- refusals


def test_a_templates_own_message_reaches_the_user() -> None:
    source = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}ok"
    assert render(source) == "ok"
    with pytest.raises(UsageError, match="System role not supported") as caught:
        render(source, [{"role": "system", "content": "x"}])
    assert ORIGIN in str(caught.value)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"content": "no role"},
        {"role": "user"},
        {"role": None, "content": "x"},
        {"role": 3, "content": "x"},
        {"role": "user", "content": None},
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
        {"role": "user", "content": b"x"},
    ],
)
def test_a_message_without_role_and_content_is_a_usage_error(message: dict[str, Any]) -> None:
    for messages in ([message], [*HELLO, message]):
        with pytest.raises(UsageError, match="role"):
            render(CHATML, messages)


@pytest.mark.parametrize(
    "source",
    [
        "{% for message in messages %}",
        "{{ message.role ",
        "{% endfor %}",
        "{% if %}x{% endif %}",
        "{{ 1 + }}",
        "{{ 'open }}",
        "{% nonsense %}",
        "{{ x | nosuchfilter }}",
        "{{ x is nosuchtest }}",
        "{% break %}{% set = 1 %}",
        "{{ " + "(" * 2000 + ")" * 2000 + " }}",
    ],
)
def test_broken_syntax_is_a_model_file_error(source: str) -> None:
    with pytest.raises(ModelFileError, match="chat template") as caught:
        render(source)
    assert ORIGIN in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("{% for a in [1] %}" * 25 + "{% endfor %}" * 25, id="25 nested loops"),
        pytest.param("{% if messages %}" * 120 + "{% endif %}" * 120, id="120 nested conditions"),
        pytest.param("{{ " + "1" * 5000 + " }}", id="a number of 5000 digits"),
    ],
)
def test_a_template_that_python_cannot_compile_is_a_model_file_error(source: str) -> None:
    with pytest.raises(ModelFileError, match="chat template"):
        render(source)


def test_a_huge_template_is_a_model_file_error() -> None:
    with pytest.raises(ModelFileError, match=str(MAX_TEMPLATE_LENGTH)):
        ChatTemplate("x" * (MAX_TEMPLATE_LENGTH + 1), ORIGIN)
    assert render("x" * MAX_TEMPLATE_LENGTH) == "x" * MAX_TEMPLATE_LENGTH


@pytest.mark.parametrize(
    "source",
    [
        "{{ 1 / 0 }}",
        "{{ messages[0].content + 1 }}",
        "{{ nothing.at.all }}",
        "{{ nothing() }}",
        "{{ nothing | tojson }}",
        "{% include 'other' %}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    ],
)
def test_a_template_that_fails_on_a_conversation_is_a_usage_error(source: str) -> None:
    with pytest.raises(UsageError, match="chat template") as caught:
        render(source)
    assert ORIGIN in str(caught.value)


# ---- the sandbox


@pytest.mark.parametrize(
    "expression",
    [
        '"".__class__',
        '""["__class__"]',
        '""|attr("__class__")',
        '"".__class__.__mro__',
        '"".__class__.__mro__[1].__subclasses__()',
        "messages.__class__.__base__",
        '"{0.__class__}".format("")',
        '"{0.__class__.__mro__}".format(messages)',
        '"{x.__class__}".format_map({"x": messages})',
        '"%s" % messages.__class__',
        'messages|map(attribute="__class__")|list',
        "raise_exception.__globals__",
        "raise_exception.__code__",
        'strftime_now.__globals__["datetime"]',
        "cycler.__init__.__globals__",
        "namespace.__init__",
        "joiner.__init__.__globals__.os",
        "self._TemplateReference__context",
        "self.__init__.__globals__",
        "range.__self__",
        '__import__("os")',
        'open("/etc/passwd").read()',
        'eval("1")',
    ],
)
def test_attribute_escapes_lead_nowhere(expression: str) -> None:
    for source in ("{{ " + expression + " }}", "{% set x = " + expression + " %}{{ x }}"):
        try:
            rendered = render(source)
        except EdgespecError:
            continue
        assert rendered in ("", "[]", "[Undefined]"), "something of the interpreter was reached"


@pytest.mark.parametrize("expression", ["range(1000000)", "range(10 * 1000000000)", "range(0, 10000000, 2)"])
def test_huge_ranges_are_refused(expression: str) -> None:
    with pytest.raises(UsageError, match="Range too big"):
        render("{% for i in " + expression + " %}{% endfor %}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ messages.clear() }}",
        "{% set x = messages.pop() %}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ messages[0].clear() }}",
    ],
)
def test_a_template_cannot_change_the_conversation(source: str) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    with pytest.raises(UsageError):
        render(source, messages)
    assert messages == HELLO


def test_a_template_that_writes_too_much_is_stopped() -> None:
    with pytest.raises(UsageError, match="64 MiB"):
        render(
            "{% for i in range(1000) %}{{ messages[0].content }}{% endfor %}",
            [{"role": "user", "content": "x" * (1 << 20)}],
        )


# ---- the child process


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "{% set ns = namespace(s='aa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(n=3) %}{% for i in range(60) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
        "{{ 'a' * 10000000000 }}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ 'a'|center(1000000000000) }}",
        "{{ 'a\nb'|indent(1000000000000) }}",
        "{{ '%10000000000d' % 3 }}",
        "{{ '{:>5e10}'.format(1) }}{{ '{:>50000000000}'.format(1) }}",
        "{{ [1]|slice(99999999999)|list }}",
        "{{ [1]|batch(9999999999, 0)|list }}",
        "{{ {'a': [1]}|tojson(indent=4000000000) }}",
        "{{ lipsum(n=1000000) }}",
        "{{ range(99999)|join('a' * 1000000) }}",
    ],
)
def test_a_template_that_takes_too_much_is_ended(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "_TIME_LIMIT_S", 0.5)
    started = time.perf_counter()
    # Jinja computes what is constant already while it compiles
    with pytest.raises(EdgespecError, match=r"model\.gguf: the chat template (fails on|can't be read).*: \w+"):
        render(source)
    assert time.perf_counter() - started < 30  # seconds, not hours


def test_a_template_whose_process_was_ended_renders_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "_TIME_LIMIT_S", 0.5)
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    template = ChatTemplate("{% if messages|length > 1 %}" + endless + "{% endif %}ok", ORIGIN)
    for _ in range(2):
        assert template.render(HELLO) == "ok"
        with pytest.raises(UsageError):
            template.render(HELLO * 2)
    assert template._worker is None
    template.close()
    assert template.render(HELLO) == "ok"
    assert template._worker is not None
    template._worker._process.kill()  # by somebody else, as an interrupt would
    template._worker._process.wait()
    assert template.render(HELLO) == "ok"


def test_an_interrupt_of_the_terminal_does_not_reach_the_process() -> None:
    template = ChatTemplate("ok", ORIGIN)
    assert template.render(HELLO) == "ok"
    assert template._worker is not None
    process = template._worker._process
    process.send_signal(signal.SIGINT)
    assert template.render(HELLO) == "ok"
    assert template._worker is not None
    assert template._worker._process is process
    template.close()
    assert process.poll() is not None


def test_modules_of_the_folder_we_are_in_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jinja2.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    assert render("ok") == "ok"


def test_half_a_surrogate_pair_from_a_template_is_passed_on_as_it_is() -> None:
    assert render("{{ '\\ud83d' }}") == "\ud83d"


@pytest.mark.parametrize("content", ["\ud800", "a\udcffb"])
def test_a_message_that_is_not_text_is_a_usage_error(content: str) -> None:
    with pytest.raises(UsageError, match="content: isn't valid text"):
        render(CHATML, [{"role": "user", "content": content}])


@pytest.mark.parametrize("messages", [["text"], [None], [{"role": "user", "content": "x", "more": object()}], [{1: 2}]])
def test_messages_of_the_wrong_type_are_usage_errors(messages: list[Any]) -> None:
    with pytest.raises(UsageError, match="message"):
        render(CHATML, messages)


def test_messages_may_come_from_a_generator() -> None:
    assert "Hello" in ChatTemplate(CHATML, ORIGIN).render(m for m in HELLO)  # type: ignore[arg-type]
