"""Chat through a pipe and on a pseudo-terminal, where it runs as a person would run it."""

from __future__ import annotations

import base64
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgespec.cli.chat_commands import COMMANDS
from edgespec.cli.chat_input import is_open, understood
from edgespec.cli.chat_screen import split_blocks, stats_line
from edgespec.events import Stats

from .command import Run, one_line_error, run
from .terminal import Terminal

__all__ = ["run"]

Start = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path, tiny: Path) -> Iterator[Start]:
    """Starts a chat with the tiny model on a terminal; its history is the test's own."""
    open_: list[Terminal] = []

    def start_(*arguments: object, model: Path = tiny, **options: int) -> Terminal:
        environment = {"EDGESPEC_HISTORY": str(tmp_path / "history")}
        open_.append(Terminal("chat", model, *arguments, environment=environment, **options))
        return open_[-1]

    yield start_
    for terminal in open_:
        terminal.close()


def saved(terminal: Terminal, path: Path) -> list[dict[str, str]]:
    """The conversation, through /save."""
    told = terminal.text.count("saved to")
    terminal.enter(f"/save {path}")
    terminal.until("saved to", told + 1)
    messages = json.loads(path.read_text())["messages"]
    path.unlink()
    assert isinstance(messages, list)
    return messages


# ---- a pipe


def test_each_line_is_answered_and_remembered(run: Run, tiny: Path) -> None:
    result = run("chat", tiny, "-n", 5, "--temperature", 0, "--strategy", "plain", stdin=b"Hello\n\nAnd now?\n/show\n")
    assert result.code == 0
    assert result.err.count("tokens/s") == 2
    assert "2 questions" in result.err
    assert "\x1b" not in result.out + result.err
    assert run("chat", tiny, stdin=b"").code == 0
    assert run("chat", tiny, "-n", 5, "--no-stats", stdin=b"Hello\n/bye\nnever asked\n").err == ""


def test_a_block_is_one_question(run: Run, tiny: Path, tmp_path: Path) -> None:
    talk = tmp_path / "talk.json"
    run("chat", tiny, "-n", 2, stdin=f'"""first\n/help\nlast"""\n/save {talk}\n'.encode())
    assert json.loads(talk.read_text())["messages"][0]["content"] == "first\n/help\nlast"
    talk.unlink()
    run("chat", tiny, "-n", 2, stdin=f' /not a command\n/save {talk}\n"""never\nended'.encode())
    assert json.loads(talk.read_text())["messages"][0]["content"] == "/not a command"


def test_a_mistake_in_a_pipe_is_an_error(run: Run, tiny: Path, tmp_path: Path) -> None:
    for line, words in (
        ("/nonsense", "/help"), ("/set temperature hot", "number"), ("/set temperature -1", "temperature"),
        ("/set mood good", "/set"), ("/load", "needs a file"), (f"/load {tmp_path}/none", "no such file"),
        ("/retry", "nothing was said"), ("/undo", "nothing was said"), ("/copy", "no answer"),
        ("/strategy best", "choose from"), ("/strategy draft", "--draft"), ("/set drafts maybe", "on or off"),
    ):  # fmt: skip
        one_line_error(run("chat", tiny, stdin=f"{line}\n".encode()), 2, words)


def test_the_context_overflows_and_it_goes_on(run: Run, tiny: Path) -> None:
    result = run("chat", tiny, "-n", 20, "--ctx", 100, "--temperature", 0, stdin=b"Hello there\n" * 6)
    assert result.code == 0
    assert result.err.count("tokens/s") == 6
    assert "oldest messages are forgotten" in result.err
    too_long = run("chat", tiny, "--ctx", 8, stdin=b"Hello there, how are you today?\n")
    assert too_long.code == 1
    assert "--ctx" in too_long.err


def test_markdown_is_laid_out_where_that_is_asked_for(run: Run, tiny: Path) -> None:
    assert run("chat", tiny, "-n", 8, "--markdown", stdin=b"Hello\n").code == 0


# ---- pieces


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", ""), ("one line", ""), ("a\n\nb", "a\n\n"), ("a\n\n", "a\n\n"), ("a\nb\n", ""),
        ("```\nx\n\ny\n", ""), ("```\nx\n\ny\n```\n", "```\nx\n\ny\n```\n"), ("```py\nx\n```", ""),
        ("a\n\n```\nx\n\n", "a\n\n"), ("~~~\n```\n\n~~~\nz", "~~~\n```\n\n~~~\n"),
    ],
)  # fmt: skip
def test_markdown_is_cut_between_blocks(text: str, whole: str) -> None:
    assert split_blocks(text) == (whole, text[len(whole) :])


def test_what_is_entered_is_understood() -> None:
    assert understood("  hello \n") == ("hello", False)
    assert understood("/set seed 3\n") == ("/set seed 3", True)
    assert understood(" /etc/passwd") == ("/etc/passwd", False)
    assert understood('"""\n/a\n b\n"""') == ("/a\n b", False)
    assert [is_open(text) for text in ('"""', '"""a', '"""a"""', "a", '""""""')] == [True, True, False, False, False]


def test_the_line_after_an_answer_says_only_what_was_measured() -> None:
    stats = Stats("auto", "llamacpp", 100, 90, 40, 20, 30, 15, 12.5, 0.25, 1)
    line = stats_line(stats, 1.5)
    for part in ("12.5 tokens/s", "1.50 x plain", "50% of 30", "2.00 tokens/pass", "0.25 s", "10 of 100"):
        assert part in line
    assert "plain" not in stats_line(stats, None)


# ---- a terminal


def test_every_command_does_what_help_says(start: Start, tmp_path: Path) -> None:
    terminal = start("-n", 8, "--temperature", 0, "--no-markdown")
    terminal.enter("/help")
    terminal.until("/bye")
    for name in COMMANDS:
        assert name in terminal.text
    terminal.enter("/system Be kind.")
    terminal.until("system: Be kind.")
    terminal.enter("/set max_tokens 6")
    terminal.until("max_tokens 6")
    terminal.enter("/set")
    terminal.until("top_p")
    terminal.enter("What is a tide?")
    terminal.until("tokens/s")
    terminal.enter("/show")
    terminal.until("1 questions")
    terminal.enter("/stats")
    terminal.until("peak memory")
    first = saved(terminal, tmp_path / "a.json")
    assert [message["role"] for message in first] == ["system", "user", "assistant"]
    terminal.enter("/retry")
    assert saved(terminal, tmp_path / "a.json") == first  # greedy
    terminal.enter("/copy")
    terminal.until("copied")
    assert base64.b64encode(first[-1]["content"].encode()) in terminal.raw
    terminal.enter("/strategy lookup")
    terminal.until("strategy lookup")
    terminal.enter("/undo")
    terminal.until("taken back: What is a tide?")
    assert saved(terminal, tmp_path / "a.json") == first[:1]
    (tmp_path / "b.json").write_text(json.dumps({"format": 1, "messages": first}))
    terminal.enter(f"/load {tmp_path / 'b.json'}")
    terminal.until("3 messages")
    terminal.enter("/clear")
    terminal.until("forgotten")
    terminal.enter("/nonsense")
    terminal.until("Error: /nonsense: no such command")
    terminal.enter("/bye")
    assert terminal.exit_code() == 0


@pytest.mark.parametrize("layout", ["--markdown", "--no-markdown"])
def test_ctrl_c_stops_the_answer_and_the_next_question_is_answered(start: Start, tmp_path: Path, layout: str) -> None:
    terminal = start("-n", 1500, "--temperature", 1, layout)
    for delay in (0.002, 0.05, 0.4, *(0.005 * step for step in range(20))):
        terminal.enter("Hello")
        time.sleep(delay)
        terminal.send("\x03")
        terminal.until_prompt()
    terminal.enter("/set max_tokens 3")
    terminal.enter("And now?")
    terminal.until("tokens/pass")
    messages = saved(terminal, tmp_path / "a.json")
    assert messages[-2]["content"] == "And now?"
    assert all(one["role"] != other["role"] for one, other in itertools.pairwise(messages))
    terminal.until_prompt()
    told = terminal.text.count("/bye leaves")
    terminal.send("\x03")
    terminal.until("/bye leaves", told + 1)
    terminal.until_prompt()
    terminal.send("\x04")
    assert terminal.exit_code() == 0


def test_a_pasted_block_of_50_lines_is_one_question(start: Start, tmp_path: Path) -> None:
    terminal = start("-n", 3)
    block = "\n".join(f"line {number}: /help 🧑‍🚀" for number in range(50))
    terminal.until_prompt()
    terminal.send(f"\x1b[200~{block}\x1b[201~")
    terminal.until("line 49")
    terminal.send("\r")
    terminal.until("tokens/s")
    assert saved(terminal, tmp_path / "a.json")[0]["content"] == block


def test_several_lines_are_written_by_hand(start: Start, tmp_path: Path) -> None:
    terminal = start("-n", 3)
    terminal.until_prompt()
    terminal.send("one\x1b\rtwo\r")  # Alt-Enter
    terminal.until("tokens/s")
    terminal.until_prompt()
    terminal.send('"""three\rfour"""\r')
    messages = saved(terminal, tmp_path / "a.json")
    assert [m["content"] for m in messages if m["role"] == "user"] == ["one\ntwo", "three\nfour"]


def test_questions_are_remembered_over_runs_and_for_their_owner_alone(start: Start, tmp_path: Path) -> None:
    first = start("-n", 3)
    first.enter("what was it again")
    first.until("tokens/s")
    first.enter("/bye")
    assert first.exit_code() == 0
    assert (tmp_path / "history").stat().st_mode & 0o077 == 0
    second = start("-n", 3)
    second.until_prompt()
    second.send("\x1b[A\x1b[A")
    second.until("what was it again")


def test_a_narrow_terminal_without_colour(tmp_path: Path, tiny: Path) -> None:
    environment = {"EDGESPEC_HISTORY": str(tmp_path / "history"), "NO_COLOR": "1"}
    terminal = Terminal("chat", tiny, "-n", 60, columns=40, rows=20, environment=environment)
    try:
        terminal.enter("Say something that is longer than this terminal is wide, please")
        terminal.until("new]")
        lines = terminal.text.splitlines()
        assert any(line.endswith("tokens/s ·") or " tokens/s " in line for line in lines)
        assert not any(line.endswith(("accepte", "toke", "Ctr")) for line in lines)  # cut between words
        terminal.enter("/stats")
        terminal.until("peak memory")
        for code in (b"\x1b[3", b"\x1b[9", b"\x1b[38;"):  # colours
            assert not any(code + bytes([digit]) in terminal.raw for digit in b"01234567"), code
    finally:
        terminal.close()


def test_the_context_overflows_on_a_terminal_too(start: Start) -> None:
    terminal = start("-n", 20, "--ctx", 100)
    for number in range(5):
        terminal.enter(f"Tell me about number {number}")
    terminal.until("oldest messages are forgotten")
    terminal.enter("word " * 150)
    terminal.until("Error: what was said doesn't fit")
    terminal.enter("/bye")
    assert terminal.exit_code() == 0


def test_drafts_are_shaded(start: Start) -> None:
    terminal = start("-n", 40, "--show-drafts", "--strategy", "lookup", "--draft-length", "4", "--temperature", "0")
    terminal.enter("a b c d a b c d a b c d a b c d")
    terminal.until("drafted accepted")
    assert b"\x1b[2m\x1b[4m" in terminal.raw


def test_emoji_that_are_split_over_tokens_arrive_whole(start: Start, smollm: Path) -> None:
    terminal = start("-n", 30, "--temperature", 0, "--no-markdown", model=smollm)
    terminal.enter("Repeat exactly: 🎉🦀🧪")
    terminal.until("tokens/s")
    assert terminal.text.count("🎉") == 2  # asked and answered
    assert terminal.text.count("🧪") == 2
    assert "\ufffd" not in terminal.text


def test_escape_sequences_do_no_harm(start: Start, tmp_path: Path) -> None:
    terminal = start("-n", 3)
    terminal.until_prompt()
    terminal.send("\x1b[31m")  # typed, not pasted
    talk = [{"role": "system", "content": "A\x1b]0;owned\x07\x1b[2J"}, {"role": "user", "content": "q\x1b[31mRED"}]
    (tmp_path / "talk.json").write_text(json.dumps({"format": 1, "messages": talk}))
    terminal.send("\r")
    for command in (f"/load {tmp_path / 'talk.json'}", "/system", "/undo"):
        terminal.enter(command)
    terminal.until("taken back")
    assert "event loop" not in terminal.text
    assert b"\x1b]0;owned" not in terminal.raw
    assert b"\x1b[31mRED" not in terminal.raw


def test_numbers_are_never_cut(run: Run, tiny: Path) -> None:
    one_line_error(run("chat", tiny, stdin=b"/set seed 99999999999999999999999\n"), 2, "seed")
