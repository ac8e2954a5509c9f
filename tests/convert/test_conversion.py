"""Conversions from end to end: with llama.cpp's converter, transformers and real files."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from edgespec.convert.check import check_model, check_template, gguf_reference
from edgespec.convert.conversion import Converted, Order, convert
from edgespec.convert.source import resolve_source
from edgespec.models.errors import ModelFileError, VocabularyMismatch
from edgespec.models.gguf import read_header
from edgespec.models.manifest import open_pack

pytest.importorskip("transformers")


class Heard:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.notes: list[str] = []

    def step(self, title: str, total: int) -> None:
        self.steps.append(title)

    def advance(self, done: int, what: str = "") -> None:
        assert done >= 0

    def note(self, text: str) -> None:
        self.notes.append(text)


def run(
    source: Path, out: Path, *quants: str, draft: Path | None = None, heard: Heard | None = None
) -> list[Converted]:
    helper = None if draft is None else resolve_source(str(draft))
    return convert(Order(resolve_source(str(source)), out, helper, quants), "a test", heard or Heard())


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with llama3's rope scaling and SmolLM2's tokenizer; its chat template in a file of its own."""
    from scripts.random_checkpoints import write_random

    folder = tmp_path_factory.mktemp("checkpoints") / "random-llama"
    write_random("llama", folder, tied=False)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "chat_template.jinja").write_text(config.pop("chat_template"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def packs(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Converted]:
    return run(checkpoint, tmp_path_factory.mktemp("packs") / "random", "F32", "Q8_0")


def test_a_checkpoint_says_the_same_as_a_gguf(packs: list[Converted]) -> None:
    assert [pack.path.name for pack in packs] == ["random-f32", "random-q8_0"]
    for pack, share, same in zip(packs, (0.001, 0.15), (1.0, 0.75), strict=True):
        figures = pack.made["checked"]["target"]
        assert figures["reference"] == "transformers, float32"
        assert (figures["positions"], figures["worst_share"] < share, figures["same_top"] >= same) == (640, True, True)
        assert open_pack(pack.path).made == pack.made
    assert [path.name for path in packs[0].path.parent.iterdir() if path.name.startswith(".")] == []


def test_template_and_special_tokens_come_along(packs: list[Converted], smollm: Path) -> None:
    found, original = read_header(open_pack(packs[0].path).target).metadata, read_header(smollm).metadata
    for key in ("chat_template", "bos_token_id", "eos_token_id", "pre", "model", "add_bos_token"):
        assert found[f"tokenizer.ggml.{key}" if key != "chat_template" else "tokenizer.chat_template"] == original.get(
            f"tokenizer.ggml.{key}" if key != "chat_template" else "tokenizer.chat_template", False
        )
    assert list(found["tokenizer.ggml.tokens"]) == list(original["tokenizer.ggml.tokens"])


def test_a_pack_that_was_made_is_not_made_again(checkpoint: Path, packs: list[Converted]) -> None:
    heard = Heard()
    again = run(checkpoint, packs[0].path.with_name("random"), "F32", "Q8_0", heard=heard)
    assert [pack.was_there for pack in again] == [True, True]
    assert heard.steps == []


def test_what_is_there_is_never_overwritten(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("x")
    with pytest.raises(ModelFileError, match="exists already"):
        run(tiny, tmp_path / "mine", "Q8_0")
    assert (tmp_path / "mine" / "precious").read_text() == "x"


def test_a_gguf_is_quantized_or_taken_as_it_is(tiny: Path, tiny_draft: Path, tmp_path: Path) -> None:
    (quantized,) = run(tiny, tmp_path / "q", "Q8_0", draft=tiny_draft)
    pack = open_pack(quantized.path)
    assert (pack.target.name, pack.draft and pack.draft.name) == ("tiny-q8_0.gguf", "tiny-draft-q8_0.gguf")
    assert set(quantized.made["checked"]) == {"target", "draft"}
    (taken,) = run(tiny, tmp_path / "same")
    assert open_pack(taken.path).target.read_bytes() == tiny.read_bytes()
    assert "checked" not in taken.made or taken.made["checked"] == {}


def test_quantizing_what_is_quantized_is_warned_about(tiny: Path, tmp_path: Path) -> None:
    run(tiny, tmp_path / "low", "Q4_0")
    heard = Heard()
    run(tmp_path / "low", tmp_path / "again", "Q8_0", heard=heard)
    assert any("loses more" in note for note in heard.notes)


def test_weights_of_few_bits_become_floats(tiny: Path, tmp_path: Path) -> None:
    """Floats are multiplied more exactly than the weights that they come from; that's no fault of the conversion."""
    run(tiny, tmp_path / "low", "Q4_1")
    (made,) = run(tmp_path / "low", tmp_path / "floats", "F32")
    assert 0.005 < made.made["checked"]["target"]["error"] < 0.1


def test_a_draft_of_few_bits_stays_as_it_is(tiny: Path, tiny_draft: Path, tmp_path: Path) -> None:
    run(tiny_draft, tmp_path / "low", "Q4_0")
    (made,) = run(tiny, tmp_path / "pack", "Q8_0", draft=tmp_path / "low")
    draft = open_pack(made.path).draft
    assert draft is not None
    assert draft.read_bytes() == open_pack(tmp_path / "low").target.read_bytes()


def test_a_draft_of_another_language_is_refused(tiny: Path, tiny_other: Path, tmp_path: Path) -> None:
    with pytest.raises(VocabularyMismatch, match="tokens differ"):
        run(tiny, tmp_path / "pack", "Q8_0", draft=tiny_other)
    assert list(tmp_path.iterdir()) == []


def test_target_and_draft_of_one_name_do_not_collide(tiny: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shutil.copy(tiny, tmp_path / name / "model.gguf")
    (made,) = run(tmp_path / "a/model.gguf", tmp_path / "pack", draft=tmp_path / "b/model.gguf")
    pack = open_pack(made.path)
    assert (pack.target.name, pack.draft and pack.draft.name) == ("model.gguf", "draft-model.gguf")


def test_a_result_that_says_something_else_is_a_failure(
    tiny: Path, tiny_draft: Path, tiny_other: Path, tmp_path: Path
) -> None:
    reference = gguf_reference(tiny, tmp_path)
    assert check_model(tiny, "F32", reference)["same_top"] == 1.0
    with pytest.raises(ModelFileError, match="doesn't say what its source says"):
        check_model(tiny_draft, "Q8_0", reference)
    with pytest.raises(ModelFileError, match="tokenizer isn't the source's"):
        check_model(tiny_other, "Q4_0", reference)
    with pytest.raises(ModelFileError, match="BOS"):
        check_model(tiny, "F32", reference._replace(bos=1))
    with pytest.raises(ModelFileError, match="ends a text with token 3"):
        check_model(tiny, "F32", reference._replace(eos=3))
    np.save(tmp_path / "nan.npy", np.full_like(np.load(reference.logits), np.nan))
    with pytest.raises(ModelFileError, match="doesn't say"):
        check_model(tiny, "F32", reference._replace(logits=tmp_path / "nan.npy"))


def test_a_full_disk_is_told_before_the_work(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: type("Usage", (), {"free": 1000})())
    with pytest.raises(ModelFileError, match="needs about"):
        run(tiny, tmp_path / "pack", "Q8_0")
    assert list(tmp_path.iterdir()) == []


def test_relative_places_and_equal_names(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (made,) = run(tiny, Path("pack"), "Q8_0", draft=tiny)
    assert open_pack(made.path).draft is not None
    with pytest.raises(ModelFileError, match="inside another pack"):
        run(tiny, Path("pack/inner"))


def test_a_draft_of_a_checkpoint_is_checked_too(checkpoint: Path, packs: list[Converted], tmp_path: Path) -> None:
    (made,) = run(packs[0].path, tmp_path / "pack", draft=checkpoint)
    assert set(made.made["checked"]) == {"draft"}


def test_tokens_of_the_template_that_swallow_blanks_are_noticed(checkpoint: Path, tmp_path: Path) -> None:
    source = broken(checkpoint, tmp_path / "strange", {})
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    for token in tokenizer["added_tokens"]:
        token["lstrip"] = token["content"] == "<|im_end|>"
    (source / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ModelFileError, match="tokenizer isn't the source's"):
        run(source, tmp_path / "pack", "F16")


@pytest.mark.parametrize(("kept", "template"), [("a\nb", "a\r\nb\r\n"), (None, ""), (None, "  \n"), ("x", None)])
def test_templates_are_compared_by_what_they_say(tiny: Path, kept: str | None, template: str | None) -> None:
    header = dataclasses.replace(read_header(tiny), metadata={"tokenizer.chat_template": kept} if kept else {})
    check_template(header, template)
    with pytest.raises(ModelFileError, match="got lost"):
        check_template(header, "another")


def broken(checkpoint: Path, folder: Path, config: dict[str, object]) -> Path:
    shutil.copytree(checkpoint, folder)
    known = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(known | config))
    return folder


def test_an_unknown_architecture_is_named(checkpoint: Path, tmp_path: Path) -> None:
    source = broken(checkpoint, tmp_path / "strange", {"architectures": ["NeverHeardOfForCausalLM"]})
    with pytest.raises(ModelFileError, match="doesn't know this architecture"):
        run(source, tmp_path / "pack", "F16")
    assert not (tmp_path / "pack").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["strange"]


def test_a_tokenizer_that_llama_cpp_does_not_know_is_told(checkpoint: Path, tmp_path: Path) -> None:
    source = broken(checkpoint, tmp_path / "strange", {})
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    tokenizer["pre_tokenizer"] = {
        "type": "ByteLevel",
        "add_prefix_space": True,
        "trim_offsets": True,
        "use_regex": False,
    }
    (source / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ModelFileError, match=r"splits text in a way that llama.cpp doesn't know"):
        run(source, tmp_path / "pack", "F16")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no kill -9")
def test_a_kill_leaves_no_half_pack_and_the_next_run_goes_on(tiny: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "edgespec.cli.main",
        "convert",
        str(tiny),
        "--quant",
        "Q8_0",
        "-o",
        str(tmp_path / "pack"),
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=dict(os.environ))
    work = tmp_path / ".pack.work"
    deadline = time.monotonic() + 60
    while not (work / "target" / "tiny-q8_0.gguf").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not (tmp_path / "pack").exists()
    heard = Heard()
    run(tiny, tmp_path / "pack", "Q8_0", heard=heard)
    assert not any("quantizing" in step for step in heard.steps)
    assert open_pack(tmp_path / "pack").target.name == "tiny-q8_0.gguf"
    assert [path.name for path in tmp_path.iterdir()] == ["pack"]
