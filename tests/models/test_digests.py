"""SHA-256 of files: right, remembered, and computed anew when the file or the memory isn't what it was."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from edgespec.models.digests import sha256_of


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "own"
    monkeypatch.setenv("EDGESPEC_CACHE", str(folder))
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"contents")
    return path


def memories(own: Path) -> list[Path]:
    return [path for path in own.rglob("*") if path.is_file()]


def test_digest_of_nothing_is_the_known_one(own: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert sha256_of(tmp_path / "empty") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_digest_is_hashlibs_of_the_whole_file(own: Path, tiny: Path) -> None:
    assert sha256_of(tiny) == hashlib.sha256(tiny.read_bytes()).hexdigest()


def test_digest_is_the_same_when_remembered(own: Path, file: Path) -> None:
    assert sha256_of(file) == sha256_of(file) == hashlib.sha256(b"contents").hexdigest()
    assert len(memories(own)) == 1


def test_unchanged_file_is_not_read_again(own: Path, file: Path) -> None:
    sha256_of(file)
    (memory,) = memories(own)
    memory.write_text(json.dumps("0" * 64))
    assert sha256_of(file) == "0" * 64


def test_unchanged_file_is_known_under_a_link(own: Path, file: Path) -> None:
    sha256_of(file)
    link = file.with_name("link")
    link.symlink_to(file)
    assert sha256_of(link) == hashlib.sha256(b"contents").hexdigest()
    assert len(memories(own)) == 1


def test_file_changed_in_place_gets_a_new_digest(own: Path, file: Path) -> None:
    before = file.stat()
    sha256_of(file)
    file.write_bytes(b"CONTENTS")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert sha256_of(file) == hashlib.sha256(b"CONTENTS").hexdigest()


def test_file_replaced_with_its_old_time_and_size_gets_a_new_digest(own: Path, file: Path) -> None:
    before = file.stat()
    sha256_of(file)
    other = file.with_name("other")
    other.write_bytes(b"CONTENTS")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)
    assert sha256_of(file) == hashlib.sha256(b"CONTENTS").hexdigest()


def test_file_that_grew_gets_a_new_digest(own: Path, file: Path) -> None:
    before = file.stat()
    sha256_of(file)
    file.write_bytes(b"contents and more")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert sha256_of(file) == hashlib.sha256(b"contents and more").hexdigest()


@pytest.mark.parametrize("damage", ["", "{", '"abc"', "7", "null", '["a"]', json.dumps("0" * 63)])
def test_damaged_memory_is_computed_again(own: Path, file: Path, damage: str) -> None:
    sha256_of(file)
    (memory,) = memories(own)
    memory.write_text(damage)
    assert sha256_of(file) == hashlib.sha256(b"contents").hexdigest()
    assert json.loads(memory.read_text()) == hashlib.sha256(b"contents").hexdigest()


def test_digest_needs_no_cache(own: Path, file: Path) -> None:
    own.write_bytes(b"a file where the folder should be")
    assert sha256_of(file) == hashlib.sha256(b"contents").hexdigest()


def test_name_that_is_no_text_is_hashed(own: Path, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    try:
        path.write_bytes(b"contents")
    except (OSError, UnicodeError) as error:
        pytest.skip(f"this system has no such names: {error}")
    assert sha256_of(path) == hashlib.sha256(b"contents").hexdigest()


def test_missing_file_is_an_os_error(own: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sha256_of(tmp_path / "gone")
