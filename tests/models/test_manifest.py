"""Packs: what a manifest may say, and that nothing it says leads outside its folder."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from edgespec.models.errors import ModelFileError
from edgespec.models.manifest import MANIFEST_NAME, HeadsFile, Pack, manifest_schema, open_pack, validate_manifest

ZEROS = "0" * 64
FILE = {"file": "m.gguf", "sha256": ZEROS}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def place(folder: Path, name: str, data: bytes) -> dict[str, str]:
    """A file in the folder, and its entry in a manifest."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return {"file": name, "sha256": digest(data)}


def describe(folder: Path, manifest: Any) -> Path:
    return scribble(folder, json.dumps(manifest))


def scribble(folder: Path, text: str) -> Path:
    (folder / MANIFEST_NAME).write_text(text, "utf-8")
    return folder


def refusal(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        open_pack(path)
    return str(caught.value)


# What can be opened


def test_bare_gguf_is_a_pack_of_a_target_alone(tiny: Path) -> None:
    assert open_pack(tiny) == Pack(target=tiny)


def test_pack_is_opened_by_its_folder_or_its_manifest(tmp_path: Path) -> None:
    describe(tmp_path, {"format": 1, "target": place(tmp_path, "m.gguf", b"weights")})
    assert open_pack(tmp_path) == Pack(target=tmp_path / "m.gguf")
    assert open_pack(tmp_path / MANIFEST_NAME) == open_pack(tmp_path)


def test_everything_that_a_manifest_may_hold_is_read(tmp_path: Path) -> None:
    heads = [{"kind": kind, **place(tmp_path, f"heads/{kind}.bin", kind.encode())} for kind in ("medusa", "eagle")]
    manifest = {
        "format": 1,
        "target": place(tmp_path, "m.gguf", b"weights"),
        "draft": place(tmp_path, "sub/d.gguf", b"draft"),
        "heads": heads,
        "template": "{{ messages }} é",
        "made": {"by": "hand", "nested": [1, {"two": None}]},
    }
    assert open_pack(describe(tmp_path, manifest)) == Pack(
        target=tmp_path / "m.gguf",
        draft=tmp_path / "sub/d.gguf",
        heads=(
            HeadsFile("medusa", tmp_path / "heads/medusa.bin", digest(b"medusa")),
            HeadsFile("eagle", tmp_path / "heads/eagle.bin", digest(b"eagle")),
        ),
        template="{{ messages }} é",
        made={"by": "hand", "nested": [1, {"two": None}]},
    )


def test_schema_itself_is_valid() -> None:
    import jsonschema

    jsonschema.Draft202012Validator.check_schema(manifest_schema())


# What isn't a manifest


def test_folder_without_manifest_is_named(tmp_path: Path) -> None:
    message = refusal(tmp_path)
    assert message.startswith(f"{tmp_path}: ")
    assert MANIFEST_NAME in message


@pytest.mark.parametrize("text", ["", "{", "{'format': 1}", '{"format": 1,}', "[1] 2", "1" * 5000, "\ufeff{}"])
def test_bad_json_is_refused(tmp_path: Path, text: str) -> None:
    message = refusal(scribble(tmp_path, text))
    assert message.startswith(str(tmp_path / MANIFEST_NAME))


@pytest.mark.parametrize("data", [b'"\xff\xfe"', '{"format": 1}'.encode("utf-16"), b"\0" * 100])
def test_bytes_that_are_no_text_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(data)
    assert "JSON" in refusal(tmp_path)


@pytest.mark.parametrize("around", ["{}", '{{"format": 1, "target": {}}}', '{{"format": 1, "target": 1, "made": {}}}'])
def test_deeply_nested_json_is_refused(tmp_path: Path, around: str) -> None:
    # some depths near the limit can be parsed, but not written into a message
    for depth in [100_000, *range(sys.getrecursionlimit() - 200, sys.getrecursionlimit())]:
        message = refusal(scribble(tmp_path, around.format("[" * depth + "]" * depth)))
        assert message.startswith(str(tmp_path / MANIFEST_NAME))


def test_huge_manifest_is_refused_unread(tmp_path: Path) -> None:
    entry = place(tmp_path, "m.gguf", b"weights")
    assert "MiB" in refusal(describe(tmp_path, {"format": 1, "target": entry, "template": "x" * (4 << 20)}))


def test_manifest_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).mkdir()
    assert refusal(tmp_path).startswith(str(tmp_path / MANIFEST_NAME))


# What breaks the schema


@pytest.mark.parametrize(
    ("manifest", "where"),
    [
        ([], "the manifest"), (None, "the manifest"), ("text", "the manifest"), (1, "the manifest"),
        ({}, "the manifest"), ({"format": 1}, "the manifest"), ({"target": FILE}, "the manifest"),
        ({"format": 1, "target": FILE, "extra": 1}, "the manifest"),
        ({"format": 0, "target": FILE}, "format"), ({"format": -1, "target": FILE}, "format"),
        ({"format": "1", "target": FILE}, "format"), ({"format": None, "target": FILE}, "format"),
        ({"format": True, "target": FILE}, "format"),
        ({"format": 1, "target": "m.gguf"}, "target"), ({"format": 1, "target": {"file": "m.gguf"}}, "target"),
        ({"format": 1, "target": {"sha256": ZEROS}}, "target"), ({"format": 1, "target": FILE | {"x": 1}}, "target"),
        ({"format": 1, "target": FILE | {"sha256": "A" * 64}}, "target.sha256"),
        ({"format": 1, "target": FILE | {"sha256": "0" * 63}}, "target.sha256"),
        ({"format": 1, "target": FILE | {"sha256": 0}}, "target.sha256"),
        ({"format": 1, "target": FILE | {"file": ""}}, "target.file"),
        ({"format": 1, "target": FILE | {"file": "x" * 256}}, "target.file"),
        ({"format": 1, "target": FILE | {"file": ["m.gguf"]}}, "target.file"),
        ({"format": 1, "target": FILE, "draft": None}, "draft"),
        ({"format": 1, "target": FILE, "draft": FILE | {"file": 1}}, "draft.file"),
        ({"format": 1, "target": FILE, "heads": {}}, "heads"), ({"format": 1, "target": FILE, "heads": [1]}, "heads.0"),
        ({"format": 1, "target": FILE, "heads": [FILE]}, "heads.0"),
        ({"format": 1, "target": FILE, "heads": [{"kind": "other", **FILE}]}, "heads.0.kind"),
        (
            {"format": 1, "target": FILE, "heads": [{"kind": "eagle", **FILE}, {"kind": "eagle", **FILE, "file": 1}]},
            "heads.1.file",
        ),
        ({"format": 1, "target": FILE, "template": ""}, "template"),
        ({"format": 1, "target": FILE, "template": ["x"]}, "template"),
        ({"format": 1, "target": FILE, "made": []}, "made"),
    ],
)  # fmt: skip
def test_schema_violation_names_the_place(tmp_path: Path, manifest: Any, where: str) -> None:
    message = refusal(describe(tmp_path, manifest))
    assert message.startswith(f"{tmp_path / MANIFEST_NAME}: {where}: ")


def test_long_wrong_value_is_not_repeated_whole(tmp_path: Path) -> None:
    assert len(refusal(describe(tmp_path, {"format": 1, "target": "x" * 100_000}))) < 1000


@pytest.mark.parametrize("number", [2, 3, 10**30])
def test_newer_format_asks_for_an_update(tmp_path: Path, number: int) -> None:
    message = refusal(describe(tmp_path, {"format": number, "weights": "somewhere new"}))
    assert str(number) in message
    assert "update" in message


def test_right_manifest_is_valid() -> None:
    validate_manifest({"format": 1, "target": FILE}, Path("x"))


# What leads outside, or to the wrong file

ESCAPES = [
    "../x", "../../x", "sub/../../x", "sub/..", "..", "/abs", "//server/x", "C:\\x", "C:/x", "c:x", "..\\x",
    "sub\\..\\..\\x", "\\\\server\\share\\x", "\\\\?\\C:\\x", "\\abs", "/../x",
]  # fmt: skip


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("part", ["target", "draft", "heads"])
def test_name_that_leads_outside_is_refused_though_the_file_is_right(tmp_path: Path, part: str, name: str) -> None:
    folder = tmp_path / "pack"
    folder.mkdir()
    (tmp_path / "x").write_bytes(b"secret")
    if "/" not in name and name != "..":  # where a backslash is no separator, such a file can lie in the folder
        (folder / name).write_bytes(b"secret")
    manifest: dict[str, Any] = {"format": 1, "target": place(folder, "m.gguf", b"weights")}
    entry = {"file": name, "sha256": digest(b"secret")}
    manifest[part] = [{"kind": "eagle", **entry}] if part == "heads" else entry
    message = refusal(describe(folder, manifest))
    assert repr(name) in message
    assert "outside" in message


def test_absolute_name_of_a_file_in_the_pack_is_refused(tmp_path: Path) -> None:
    entry = place(tmp_path, "m.gguf", b"weights") | {"file": str(tmp_path / "m.gguf")}
    assert "outside" in refusal(describe(tmp_path, {"format": 1, "target": entry}))


def test_name_with_two_dots_in_it_leads_nowhere_else(tmp_path: Path) -> None:
    entry = place(tmp_path, "m..v2...gguf", b"weights")
    assert open_pack(describe(tmp_path, {"format": 1, "target": entry})).target == tmp_path / "m..v2...gguf"


@pytest.mark.parametrize(
    "name", ["gone.gguf", "sub/gone.gguf", ".", "m.gguf/x", "a\0b", "\ud800", "é" * 255, "x" * 255, "sub"]
)
def test_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "sub").mkdir()
    target = place(tmp_path, "m.gguf", b"weights")
    message = refusal(describe(tmp_path, {"format": 1, "target": target, "draft": FILE | {"file": name}}))
    assert message.startswith(str(tmp_path / MANIFEST_NAME))
    assert "missing" in message


@pytest.mark.parametrize("part", ["target", "draft"])
def test_file_with_another_hash_is_named(tmp_path: Path, part: str) -> None:
    manifest = {"format": 1, "target": place(tmp_path, "m.gguf", b"w"), "draft": place(tmp_path, "d.gguf", b"d")}
    open_pack(describe(tmp_path, manifest))
    damaged = tmp_path / str(manifest[part]["file"])  # type: ignore[index]
    damaged.write_bytes(b"another")
    message = refusal(tmp_path)
    assert message.startswith(f"{damaged}: ")
    assert "SHA-256" in message


def test_heads_with_another_hash_are_named(tmp_path: Path) -> None:
    heads = [{"kind": "medusa", **place(tmp_path, "h.bin", b"h"), "sha256": ZEROS}]
    describe(tmp_path, {"format": 1, "target": place(tmp_path, "m.gguf", b"w"), "heads": heads})
    assert refusal(tmp_path).startswith(f"{tmp_path / 'h.bin'}: ")


def test_a_named_pipe_as_manifest_is_refused_unread(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "edgespec.json")
    with pytest.raises(ModelFileError, match=r"edgespec\.json: isn't a regular file"):
        open_pack(tmp_path)
