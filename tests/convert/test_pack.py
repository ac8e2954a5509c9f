"""Writing packs: what is written can be opened, and what fails leaves nothing behind."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from edgespec.convert.pack import write_pack
from edgespec.models.errors import ModelFileError
from edgespec.models.manifest import MANIFEST_NAME, Pack, open_pack

TEMPLATE = "{% for m in messages %}<|é🙂|>\n{{ m['content'] }}\t\"quoted\" \\ {% endfor %}"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with two files to pack."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "m.gguf").write_bytes(b"target weights")
    (folder / "d.gguf").write_bytes(b"draft weights")
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The folder that packs are written into."""
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def refusal(out: Path, target: Path, **options: Any) -> str:
    """What `write_pack` says; it must leave the folder of packs as it was."""
    before = sorted(out.rglob("*"))
    with pytest.raises(ModelFileError) as caught:
        write_pack(out / "pack", target, **options)
    assert sorted(out.rglob("*")) == before
    return str(caught.value)


def test_pack_of_a_target_alone_can_be_opened(tiny: Path, out: Path) -> None:
    write_pack(out / "pack", tiny)
    assert open_pack(out / "pack") == Pack(target=out / "pack" / "tiny.gguf")
    assert (out / "pack" / "tiny.gguf").read_bytes() == tiny.read_bytes()


def test_draft_template_and_history_come_back(tiny: Path, tiny_draft: Path, out: Path) -> None:
    made = {"from": "tests", "numbers": [1, 2.5, None], "é": {"nested": True}}
    write_pack(out / "pack", tiny, tiny_draft, TEMPLATE, made)
    assert open_pack(out / "pack") == Pack(
        target=out / "pack" / "tiny.gguf", draft=out / "pack" / "tiny-draft.gguf", template=TEMPLATE, made=made
    )
    assert (out / "pack" / "tiny-draft.gguf").read_bytes() == tiny_draft.read_bytes()


def test_pack_holds_its_files_and_nothing_else(sources: Path, out: Path) -> None:
    write_pack(out / "pack", sources / "m.gguf", sources / "d.gguf")
    assert [path.name for path in out.iterdir()] == ["pack"]
    assert sorted(path.name for path in (out / "pack").iterdir()) == ["d.gguf", MANIFEST_NAME, "m.gguf"]


def test_manifest_names_files_and_hashes(sources: Path, out: Path) -> None:
    write_pack(out / "pack", sources / "m.gguf", sources / "d.gguf")
    assert json.loads((out / "pack" / MANIFEST_NAME).read_text("utf-8")) == {
        "format": 1,
        "target": {"file": "m.gguf", "sha256": hashlib.sha256(b"target weights").hexdigest()},
        "draft": {"file": "d.gguf", "sha256": hashlib.sha256(b"draft weights").hexdigest()},
    }


def test_folders_above_the_pack_are_made(sources: Path, out: Path) -> None:
    write_pack(out / "a" / "b" / "pack", sources / "m.gguf")
    assert open_pack(out / "a" / "b" / "pack").target.read_bytes() == b"target weights"


def test_pack_outlives_its_sources_and_can_be_moved(sources: Path, out: Path) -> None:
    write_pack(out / "pack", sources / "m.gguf", sources / "d.gguf")
    for path in sources.iterdir():
        path.unlink()
    (out / "pack").rename(out / "moved")
    assert open_pack(out / "moved").target.read_bytes() == b"target weights"


def test_linked_source_is_packed_as_a_file(sources: Path, out: Path) -> None:
    (sources / "link.gguf").symlink_to("m.gguf")
    write_pack(out / "pack", sources / "link.gguf")
    packed = open_pack(out / "pack").target
    assert (packed.name, packed.is_symlink(), packed.read_bytes()) == ("link.gguf", False, b"target weights")


def test_files_are_copied_where_they_cannot_be_linked(
    sources: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    write_pack(out / "pack", sources / "m.gguf")
    packed = open_pack(out / "pack").target
    assert packed.read_bytes() == b"target weights"
    assert packed.stat().st_ino != (sources / "m.gguf").stat().st_ino


def test_missing_target_leaves_nothing_behind(sources: Path, out: Path) -> None:
    assert "gone.gguf" in refusal(out, sources / "gone.gguf")


def test_missing_draft_leaves_nothing_behind(sources: Path, out: Path) -> None:
    assert "gone.gguf" in refusal(out, sources / "m.gguf", draft=sources / "gone.gguf")


def test_folder_as_a_source_is_refused(sources: Path, out: Path) -> None:
    assert "sources" in refusal(out, sources)


def test_two_sources_of_one_name_are_refused(sources: Path, out: Path) -> None:
    (sources / "sub").mkdir()
    (sources / "sub" / "m.gguf").write_bytes(b"another")
    assert "m.gguf" in refusal(out, sources / "m.gguf", draft=sources / "sub" / "m.gguf")


def test_empty_template_leaves_nothing_behind(sources: Path, out: Path) -> None:
    assert "template" in refusal(out, sources / "m.gguf", template="")


def test_existing_folder_is_refused_and_kept(sources: Path, out: Path) -> None:
    (out / "pack").mkdir()
    (out / "pack" / "precious").write_bytes(b"kept")
    assert "exists" in refusal(out, sources / "m.gguf")
    assert (out / "pack" / "precious").read_bytes() == b"kept"


def test_existing_empty_folder_or_file_is_refused(sources: Path, out: Path) -> None:
    (out / "pack").mkdir()
    assert "exists" in refusal(out, sources / "m.gguf")
    (out / "pack").rmdir()
    (out / "pack").write_bytes(b"kept")
    assert "exists" in refusal(out, sources / "m.gguf")
    assert (out / "pack").read_bytes() == b"kept"


@pytest.mark.parametrize("names", [(MANIFEST_NAME, "d.gguf"), ("m.gguf", MANIFEST_NAME)], ids=["target", "draft"])
def test_source_named_like_the_manifest_is_refused_and_kept(sources: Path, out: Path, names: tuple[str, str]) -> None:
    source = sources / MANIFEST_NAME
    source.write_bytes(b"precious weights")
    with contextlib.suppress(ModelFileError):
        write_pack(out / "pack", sources / names[0], sources / names[1])
    assert source.read_bytes() == b"precious weights"
    refusal(out, sources / names[0], draft=sources / names[1])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no files of these names")
@pytest.mark.parametrize("raw", [b"C:m.gguf", b"a\\..\\m.gguf", b"caf\xe9.gguf", b"a b\n\xc3\xa9.gguf", b"-x.gguf"])
def test_source_of_an_odd_name_is_refused_or_can_be_opened(sources: Path, out: Path, raw: bytes) -> None:
    source = sources / os.fsdecode(raw)
    (sources / "m.gguf").rename(source)
    try:
        write_pack(out / "pack", source)
    except ModelFileError:
        assert list(out.iterdir()) == []
    else:
        assert open_pack(out / "pack").target.read_bytes() == b"target weights"
