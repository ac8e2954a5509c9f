from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edgespec.cli.main import COMMANDS
from edgespec.convert.pack import write_pack

from .command import Result, Run, one_line_error, run

__all__ = ["run"]


def test_help_lists_every_command_and_option_help_is_whole(run: Run) -> None:
    top = run("--help")
    assert top.code == 0
    for name in COMMANDS:
        assert name in top.out
        assert run(name, "--help").code == 0


def test_json_has_the_fields_that_others_script_against(run: Run, tiny: Path) -> None:
    result = run("generate", tiny, "-p", "Hello", "-n", 5, "--json", "--strategy", "plain")
    answer = json.loads(result.out)
    assert set(answer) == {"text", "tokens", "finish_reason", "stats"}
    assert answer["finish_reason"] == "length"
    assert len(answer["tokens"]) == 5
    assert {
        "strategy", "runtime", "prompt_tokens", "completion_tokens", "target_passes", "drafted_tokens",
        "accepted_tokens", "tokens_per_second", "time_to_first_token_s", "peak_memory_bytes",
    } <= set(answer["stats"])  # fmt: skip
    assert answer["stats"]["strategy"] == "plain"
    assert answer["stats"]["runtime"] == "llamacpp"


def test_text_goes_to_standard_output_and_notes_to_standard_error(run: Run, tiny: Path) -> None:
    plain = run("generate", tiny, "-p", "Hello", "-n", 8, "--ctx", 4096)
    assert plain.code == 0
    assert "trained for" in plain.err
    answer = json.loads(run("generate", tiny, "-p", "Hello", "-n", 8, "--json").out)
    assert plain.out == answer["text"] + "\n"


def test_prompts_come_from_option_file_and_standard_input(run: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("naïve ✓", "utf-8")
    results = [
        run("generate", tiny, "-n", 4, "-p", "naïve ✓"),
        run("generate", tiny, "-n", 4, "--file", tmp_path / "prompt.txt"),
        run("generate", tiny, "-n", 4, "--file", "-", stdin="naïve ✓".encode()),
        run("generate", tiny, "-n", 4, stdin="naïve ✓".encode()),
    ]
    assert len({r.out for r in results}) == 1
    assert all(r.code == 0 for r in results)


def test_raw_leaves_the_chat_template_out(run: Run, tiny: Path) -> None:
    counts = [
        json.loads(run("generate", tiny, "-p", "low", "-n", 1, "--json", *raw).out)["stats"]["prompt_tokens"]
        for raw in ([], ["--raw"])
    ]
    assert counts[0] > counts[1]


def test_zero_tokens_is_an_empty_line(run: Run, tiny: Path) -> None:
    assert run("generate", tiny, "-p", "x", "-n", 0)[:2] == (0, "\n")


def test_a_seed_repeats_an_answer(run: Run, tiny: Path) -> None:
    options = ("-p", "x", "-n", 20, "--temperature", 1, "--seed", 5)
    assert run("generate", tiny, *options).out == run("generate", tiny, *options).out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--temperature", "-1"], ["--temperature", "-1"]),
        (["--temperature", "nan"], ["temperature"]),
        (["--top-p", "0"], ["--top-p"]),
        (["--ctx", "0"], ["--ctx"]),
        (["-n", "-1"], ["--max-tokens"]),
        (["--strategy", "magic"], ["--strategy", "magic"]),
        (["--strategy", "draft"], ["--draft"]),
        (["--draft-length", "0"], ["draft length"]),
        (["--gpu-layers", "some"], ["--gpu-layers"]),
        (["--threads", "0"], ["--threads"]),
        (["--file", "prompt.txt"], ["not both"]),
        (["--no-such-option"], ["--no-such-option"]),
    ],
)
def test_wrong_usage_names_the_option_and_exits_with_2(
    run: Run, tiny: Path, options: list[str], words: list[str]
) -> None:
    one_line_error(run("generate", tiny, "-p", "x", *options), 2, *words)


def test_files_that_are_no_models_are_named_and_exit_with_1(run: Run, tiny: Path, tmp_path: Path) -> None:
    cases: dict[str, bytes] = {
        "empty.gguf": b"",
        "random.gguf": os.urandom(5000),
        "text.gguf": b"hello\n" * 100,
        "truncated.gguf": tiny.read_bytes()[:100_000],
        "header-only.gguf": tiny.read_bytes()[:24],
    }
    for name, data in cases.items():
        (tmp_path / name).write_bytes(data)
        one_line_error(run("generate", tmp_path / name, "-p", "x"), 1, name)
        one_line_error(run("generate", tiny, "--draft", tmp_path / name, "-p", "x"), 1, name)
    one_line_error(run("generate", tmp_path, "-p", "x"), 1, str(tmp_path), "folder")
    one_line_error(run("generate", tmp_path / "missing.gguf", "-p", "x"), 1, "missing.gguf", "no such file")


def test_a_draft_with_another_vocabulary_names_the_difference(run: Run, tiny: Path, tiny_other: Path) -> None:
    one_line_error(run("generate", tiny, "--draft", tiny_other, "-p", "x"), 1, "vocabulary", "tokens differ")


def test_a_prompt_longer_than_the_context_says_both_lengths(run: Run, tiny: Path) -> None:
    one_line_error(run("generate", tiny, "-p", "low " * 200, "--ctx", 64), 1, "64", "--ctx")


def test_invalid_utf8_names_the_file_and_the_byte(run: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "latin1.txt").write_bytes("caf\xe9".encode("latin-1"))
    one_line_error(run("generate", tiny, "--file", tmp_path / "latin1.txt"), 2, "latin1.txt", "UTF-8", "0xe9")
    one_line_error(run("generate", tiny, stdin=b"\xff\xfe"), 2, "standard input")
    one_line_error(run("generate", tiny, "--file", tmp_path / "none.txt"), 2, "none.txt")
    one_line_error(run("generate", tiny, "--file", tmp_path), 2, str(tmp_path))


@pytest.mark.parametrize(
    "manifest",
    ["", "{", "[]", "{}", '{"format": 2, "target": {}}', '{"format": 1, "target": {"file": "../x", "sha256": "0"}}',
     '{"format": 1, "target": {"file": "gone.gguf", "sha256": "%s"}}' % ("0" * 64)],
)  # fmt: skip
def test_a_broken_pack_is_an_error_that_names_it(run: Run, tmp_path: Path, manifest: str) -> None:
    (tmp_path / "edgespec.json").write_text(manifest)
    one_line_error(run("generate", tmp_path, "-p", "x"), 1, "edgespec.json")


def test_a_pack_whose_file_was_changed_is_an_error(run: Run, tiny: Path, tmp_path: Path) -> None:
    write_pack(tmp_path / "pack", tiny)
    assert run("generate", tmp_path / "pack", "-p", "x", "-n", 1).code == 0
    data = (tmp_path / "pack" / "tiny.gguf").read_bytes()
    (tmp_path / "pack" / "tiny.gguf").unlink()
    (tmp_path / "pack" / "tiny.gguf").write_bytes(data[:-1] + b"\x01")
    one_line_error(run("generate", tmp_path / "pack", "-p", "x"), 1, "tiny.gguf", "SHA-256")


def test_debug_shows_the_traceback(tiny: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "edgespec.cli.main", "--debug", "generate", str(tmp_path / "none"), "-p", "x"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "Traceback" in result.stderr


def test_info_tells_versions_devices_and_features(run: Run) -> None:
    facts = json.loads(run("info", "--json").out)
    assert facts["devices"]
    assert all(d["memory_total"] > 0 for d in facts["devices"] if d["kind"] == "cpu")
    assert "llama-cpp-python" in facts["runtimes"]["llamacpp"]
    assert facts["threads"] >= 1
    text = run("info").out
    assert facts["devices"][0]["description"] in text


def test_interrupting_a_generation_exits_with_130(tiny: Path) -> None:
    # a greedy answer that goes on until the context is full
    command = [sys.executable, "-m", "edgespec.cli.main", "generate", str(tiny), "--raw", "-p", "Once upon a time",
               "--strategy", "plain", "--threads", "1"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    os.read(process.stdout.fileno(), 10)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_a_reader_that_goes_away_is_no_error(tiny: Path) -> None:
    command = f"{sys.executable} -m edgespec.cli.main generate {tiny} -p x --temperature 1 -n 300 | head -c 5"
    result = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert result.stderr == b""


# ---- streams, signals and files that aren't what they should be

EDGESPEC = [sys.executable, "-m", "edgespec.cli.main"]


def shell(line: str, *arguments: object) -> Result:
    """A line of bash in which `$0` is `edgespec` with the arguments quoted after it."""
    command = " ".join(shlex.quote(str(a)) for a in [*EDGESPEC, *arguments])
    result = subprocess.run(
        ["bash", "-c", line.replace("$0", command)], capture_output=True, text=True, check=False, timeout=120
    )
    assert "Traceback" not in result.stderr
    assert "This is a bug" not in result.stderr
    return Result(result.returncode, result.stdout, result.stderr)


def test_a_reader_that_never_read_is_no_error_either(tiny: Path) -> None:
    result = shell('$0 | true; echo "${PIPESTATUS[0]}"', "generate", tiny, "-p", "x", "--temperature", 1, "-n", 200)
    assert result == (0, "0\n", "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_output_is_no_error(tiny: Path, closed: str) -> None:
    for command in (["generate", tiny, "-p", "x", "-n", 3], ["info"], ["generate", tiny, "-p", "x", "-n", 3, "--json"]):
        assert shell(f"$0 {closed}", *command).code == 0


def test_closed_input_is_an_empty_prompt_or_conversation(tiny: Path) -> None:
    assert shell("$0 <&-", "generate", tiny, "-p", "x", "-n", 3).code == 0
    assert shell("$0 <&-", "chat", tiny).code == 0
    assert shell("$0 <&-", "generate", tiny).code == 2


def test_an_empty_prompt_is_said_to_be_one(run: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_bytes(b"\n")
    for given in (["-p", ""], ["-p", " \n"], ["--file", tmp_path / "empty.txt"], []):
        one_line_error(run("generate", tiny, *given, stdin=b""), 2, "the prompt is empty")
    assert "-p" in run("generate", "Why is the sky blue?").err


def test_endless_input_ends_in_an_error(run: Run, tiny: Path) -> None:
    one_line_error(run("generate", tiny, "--file", "/dev/zero"), 2, "/dev/zero", "64 MiB")
    one_line_error(run("generate", tiny, "-p", "x", "--prediction", "/dev/zero"), 2, "/dev/zero", "64 MiB")
    one_line_error(shell("$0 </dev/zero", "generate", tiny), 2, "standard input", "64 MiB")
    one_line_error(shell("$0 </dev/zero", "chat", tiny), 2, "standard input", "64 MiB")


def test_named_pipes_and_devices_are_no_models(run: Run, tiny: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    one_line_error(run("generate", tmp_path / "pipe.gguf", "-p", "x"), 1, "pipe.gguf", "regular file")
    one_line_error(run("generate", tiny, "--draft", "/dev/zero", "-p", "x"), 1, "/dev/zero", "regular file")


def test_a_prompt_may_come_through_a_named_pipe(tiny: Path) -> None:
    assert shell("$0 --file <(echo Hello)", "generate", tiny, "-n", 3).code == 0


def test_one_input_cannot_be_read_twice(run: Run, tiny: Path) -> None:
    one_line_error(run("generate", tiny, "--file", "-", "--prediction", "-", stdin=b"x"), 2, "--prediction")


def test_the_home_of_nobody_is_a_usage_error(run: Run, tiny: Path) -> None:
    one_line_error(run("generate", "~no-such-user-here/m.gguf", "-p", "x"), 2, "~no-such-user-here")
    one_line_error(run("generate", tiny, "--file", "~no-such-user-here/x"), 2, "~no-such-user-here")


def test_bytes_that_are_no_text_are_refused_wherever_they_come_from(run: Run, tiny: Path) -> None:
    one_line_error(run("generate", tiny, "-p", b"caf\xe9".decode("utf-8", "surrogateescape")), 2, "-p", "text")
    one_line_error(run("chat", tiny, stdin=b"caf\xe9\n"), 2, "standard input", "0xe9")


def test_messages_stay_on_one_line_and_keep_off_the_terminal(run: Run, tiny: Path, tmp_path: Path) -> None:
    result = run("generate", tmp_path / "a\nb\x1b[31m.gguf", "-p", "x")
    one_line_error(result, 1, "a b", "[31m.gguf", "no such file")
    assert "\x1b" not in result.err
    write_pack(tmp_path / "pack", tiny, template="{{ raise_exception('one\ntwo\x1b[2J') }}")
    result = run("generate", tmp_path / "pack", "-p", "x")
    one_line_error(result, 2, "one two")
    assert "\x1b" not in result.err


def test_debug_is_an_option_not_a_word_anywhere(run: Run, tiny: Path, tmp_path: Path) -> None:
    one_line_error(run("generate", tmp_path / "none.gguf", "-p", "--debug"), 1, "none.gguf")
    assert run("--debug", "generate", tiny, "-p", "x", "--ctx", "0").code == 2


def test_a_terminated_download_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom edgespec.cli import main\nfrom edgespec.models.cache import replacing\n"
        "from pathlib import Path\n"
        "def run(**_):\n"
        "    with replacing(Path(sys.argv[1], 'big')) as file:\n"
        "        file.write(b'half'); file.flush(); print('begun', flush=True); time.sleep(60)\n"
        "main.cli.main = run\nmain.main()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    assert list(tmp_path.iterdir())
    process.terminate()
    assert process.wait(30) == 143
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has it")
def test_a_full_disk_is_named(tiny: Path) -> None:
    for command in (["generate", tiny, "-p", "x", "-n", 3], ["generate", tiny, "-p", "x", "-n", 3, "--json"], ["info"]):
        result = shell("$0 >/dev/full", *command)
        assert result.code == 1
        assert result.err.startswith("Error: standard output: can't be written: ")
    assert shell("$0 2>/dev/full", "generate", tiny, "-p", "x", "--ctx", 0).code == 2
    assert shell("$0 2>/dev/full", "generate", tiny, "-p", "x", "--ctx", 4096, "-n", 3).code == 0


def test_input_that_cannot_be_read_is_named(tiny: Path, tmp_path: Path) -> None:
    for command in ("generate", "chat"):
        one_line_error(shell(f"$0 0>{shlex.quote(str(tmp_path / 'out'))}", command, tiny), 2, "standard input")


# ---- models by name


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Path, tiny_other: Path) -> Path:
    """A shelf with a pack and a file, and a home without models of others."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EDGESPEC_MODELS", str(tmp_path / "own"))
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    write_pack(tmp_path / "own" / "little", tiny)
    (tmp_path / "own" / "another.gguf").write_bytes(tiny_other.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_list_shows_models_and_their_names_work_everywhere(run: Run, shelf: Path) -> None:
    lines = run("list").out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["name", "another", "little"]
    listed = json.loads(run("list", "--json").out)
    assert listed[1]["name"] == "little"
    assert listed[1]["bytes"] > 100_000
    assert run("generate", "little", "-p", "x", "-n", 2).code == 0
    one_line_error(run("generate", "litle", "-p", "x"), 1, "litle", "did you mean little?")
    one_line_error(run("generate", "little", "--draft", "another", "-p", "x"), 1, "tokens differ")


def test_show_names_facts_and_drafts(run: Run, shelf: Path) -> None:
    text = run("show", "little").out
    assert "3 layers" in text
    assert "1024 tokens" in text
    assert "another" in text
    facts = json.loads(run("show", "little", "--json").out)
    assert facts["target"]["architecture"] == "llama"
    assert "another" in [draft["name"] for draft in facts["drafts"]]
    one_line_error(run("show", "nothing-like-it"), 1, "nothing-like-it")


def test_rm_deletes_own_models_when_told_so(run: Run, shelf: Path) -> None:
    one_line_error(run("rm", "little"), 2, "--yes")
    assert (shelf / "own" / "little").exists()
    for name in ("little", "another"):
        assert run("rm", name, "--yes").code == 0
    assert list((shelf / "own").iterdir()) == []
    one_line_error(run("rm", "little", "--yes"), 1, "little", "edgespec list")
    path = shelf / ".lmstudio/models/a/b/c.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")
    one_line_error(run("rm", "a/b/c", "--yes"), 1, "lmstudio keeps it")
    assert path.exists()


def test_an_empty_shelf_says_where_to_put_models(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "EDGESPEC_MODELS", "EDGESPEC_CACHE"):
        monkeypatch.setenv(name, str(tmp_path))
    assert str(tmp_path) in run("list").out
