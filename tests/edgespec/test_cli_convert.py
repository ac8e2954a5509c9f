from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgespec.cli.convert import QUANTS
from edgespec.convert.quantize import QUANT_TYPES

from .command import Run, one_line_error, run

__all__ = ["run"]


def test_the_types_offered_are_those_that_can_be_made() -> None:
    assert set(QUANTS) == set(QUANT_TYPES)


def test_a_gguf_becomes_a_pack_that_answers(run: Run, tiny: Path, tmp_path: Path) -> None:
    made = run("convert", tiny, "--quant", "q8_0", "-o", tmp_path / "pack")
    assert made.code == 0
    assert str(tmp_path / "pack") in made.out
    assert "same top token at 9" in made.out
    assert "token ids equal" in made.out
    assert run("generate", tmp_path / "pack", "-p", "Hello", "-n", "3", "--raw").code == 0
    again = run("convert", tiny, "--quant", "q8_0", "-o", tmp_path / "pack", "--json")
    assert json.loads(again.out)["was_there"] is True
    shown = run("show", tmp_path / "pack")
    assert "Q8_0" in shown.out
    assert "same top token" in shown.out


def test_without_a_place_it_goes_where_list_looks(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGESPEC_MODELS", str(tmp_path / "models"))
    assert run("convert", tiny, "--quant", "Q4_0,Q8_0").code == 0
    assert {"tiny-q4_0", "tiny-q8_0"} <= {line.split()[0] for line in run("list").out.splitlines()}
    assert run("convert", tiny).code == 0
    assert run("generate", "tiny", "-p", "Hi", "-n", "1", "--raw").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["{tiny}", "--quant", "Q3_X"], 2, ["Q3_X", "Q4_K_M"]),
        (["{tiny}", "--imatrix", "{tmp}/none"], 2, ["--imatrix", "isn't a file"]),
        (["{tiny}", "--imatrix", "{tiny}"], 2, ["--imatrix", "UTF-8"]),
        (["{tiny}", "--imatrix", "{text}"], 2, ["--imatrix", "--quant"]),
        (["{tiny}", "-o", "/"], 2, ["-o"]),
        (["{tiny}", "-o", "{tmp}/.."], 2, ["-o"]),
        (["{tmp}"], 1, ["folder"]),
        (["{tmp}/none.gguf"], 1, ["no such file"]),
        (["{tiny}", "--draft", "{tmp}/none.gguf", "-o", "{tmp}/pack"], 1, ["none.gguf", "no such file"]),
        (["{tiny}", "-o", "{text}/pack"], 1, ["text"]),
        (["{tiny}", "-o", "/proc/pack"], 1, ["/proc"]),
        (["nobody/has-this"], 1, ["nobody/has-this", "can't be reached"]),
    ],
)
def test_bad_input_is_one_clear_line(
    run: Run,
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    words: list[str],
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("EDGESPEC_MODELS", str(tmp_path / "models"))
    (tmp_path / "text").write_text("some text")
    places = {"tiny": tiny, "tmp": tmp_path, "text": tmp_path / "text"}
    result = run("convert", *(argument.format(**places) for argument in arguments))
    one_line_error(result, code, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]
