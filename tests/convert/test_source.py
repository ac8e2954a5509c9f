from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.convert.pack import write_pack
from edgespec.convert.source import resolve_source
from edgespec.models.errors import ModelFileError, UsageError


def test_a_gguf_and_a_pack_are_sources(tiny: Path, tmp_path: Path) -> None:
    write_pack(tmp_path / "pack", tiny)
    for name in (tiny, tmp_path / "pack"):
        source = resolve_source(str(name))
        assert (source.name, source.checkpoint) == ("tiny", None)
        assert source.gguf is not None
        assert source.gguf.samefile(tiny) or source.gguf.read_bytes() == tiny.read_bytes()


def test_its_state_changes_with_the_file(tiny: Path, tmp_path: Path) -> None:
    copy = tmp_path / "a model!.gguf"
    copy.write_bytes(tiny.read_bytes())
    first = resolve_source(str(copy))
    assert first.name == "a-model"
    copy.touch()
    assert resolve_source(str(copy)).state != first.state


def test_what_is_no_source_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "model.safetensors").write_bytes(b"")
    for name, words in (
        (str(tmp_path / "weights"), "no config.json"),
        (str(tmp_path), "folder without"),
        (str(tmp_path / "missing.gguf"), "no such file"),
        ("no-such-model", "edgespec list"),
        ("owner/name", "can't be reached"),
    ):
        with pytest.raises(ModelFileError, match=words):
            resolve_source(name)
    with pytest.raises(UsageError):
        resolve_source("")
