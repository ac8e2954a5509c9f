"""The cache folder: files appear whole or not at all, and its loss or damage is never an error."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from edgespec.models.cache import cache_folder, recall, remember, remembered, replacing


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that this test alone uses."""
    folder = tmp_path / "own"
    monkeypatch.setenv("EDGESPEC_CACHE", str(folder))
    return folder


def test_cache_folder_is_where_the_environment_says(own: Path) -> None:
    assert cache_folder() == own


@pytest.mark.parametrize("value", [None, ""])
def test_cache_folder_without_the_variable_is_the_systems(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("EDGESPEC_CACHE")
    if value is not None:
        monkeypatch.setenv("EDGESPEC_CACHE", value)
    assert cache_folder() == Path(platformdirs.user_cache_dir("edgespec", appauthor=False))


# replacing


def test_replacing_writes_the_file_and_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    with replacing(path) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


def test_replaced_file_can_be_read_by_others(tmp_path: Path) -> None:
    with replacing(tmp_path / "file") as file:
        file.write(b"new")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def test_replacing_puts_the_new_file_in_the_old_ones_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old and longer")
    with replacing(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt, SystemExit])
def test_exception_leaves_the_old_file_and_no_part(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half of it")
            file.flush()
            assert len(list(tmp_path.glob(".file.*.part"))) == 1
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_failed_rename_leaves_no_part(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"new")

    with pytest.raises(OSError, match="folder"):
        fail()
    assert list(tmp_path.iterdir()) == [path]


# remember and recall


@pytest.mark.parametrize("value", [None, True, 3, 0.1, "text 🙂", [1, "two", None], {"a": {"b": [1.5]}}])
def test_fact_is_recalled_as_remembered(own: Path, value: Any) -> None:
    remember("kind", "key", value)
    assert recall("kind", "key") == value


def test_fact_never_remembered_is_none(own: Path) -> None:
    assert recall("kind", "key") is None


def test_facts_of_other_kinds_and_keys_stay_apart(own: Path) -> None:
    for kind, key in [("a", "x"), ("a", "y"), ("b", "x")]:
        remember(kind, key, kind + key)
    assert [recall("a", "x"), recall("a", "y"), recall("b", "x")] == ["ax", "ay", "bx"]


def test_last_value_counts(own: Path) -> None:
    remember("kind", "key", 1)
    remember("kind", "key", 2)
    assert recall("kind", "key") == 2


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b'{"a": 1', b"\xff\xfe\x00", b"\0" * 64, b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000],
    ids=["empty", "brace", "cut", "not-utf8", "zeros", "nested-cut", "nested"],
)
def test_damaged_fact_is_forgotten(own: Path, damage: bytes) -> None:
    remember("kind", "key", 1)
    (file,) = (own / "kind").iterdir()
    file.write_bytes(damage)
    assert recall("kind", "key") is None
    remember("kind", "key", 2)
    assert recall("kind", "key") == 2


def test_folder_in_a_facts_place_is_forgotten(own: Path) -> None:
    (own / "kind" / "key.json").mkdir(parents=True)
    remember("kind", "key", 1)
    assert recall("kind", "key") is None
    assert [path.name for path in (own / "kind").iterdir()] == ["key.json"]


def test_unwritable_cache_costs_only_the_memory(own: Path) -> None:
    own.write_bytes(b"a file where the folder should be")
    remember("kind", "key", 1)
    assert recall("kind", "key") is None
    assert own.read_bytes() == b"a file where the folder should be"


# what killed processes leave


def test_parts_of_killed_processes_are_removed_after_a_day(tmp_path: Path) -> None:
    old, young, other = tmp_path / ".file.abc.part", tmp_path / ".file.def.part", tmp_path / ".another.ghi.part"
    for path in (old, young, other):
        path.write_bytes(b"half")
    for path in (old, other):
        os.utime(path, (0, 0))
    with replacing(tmp_path / "file") as file:
        file.write(b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".another.ghi.part", ".file.def.part", "file"]


# remembered


def test_a_fact_is_measured_once_for_each_state(own: Path) -> None:
    measured: list[str] = []

    def fact(state: str) -> int:
        return remembered("kind", state, int, lambda: measured.append(state) or 7)

    assert [fact("a"), fact("a"), fact("b"), fact("a")] == [7, 7, 7, 7]
    assert measured == ["a", "b"]


def test_a_stored_value_that_cannot_be_restored_is_measured_again(own: Path) -> None:
    remembered("kind", "state", str, lambda: "not a number")
    assert remembered("kind", "state", int, lambda: 3) == 3
    assert remembered("kind", "state", int, lambda: 4) == 3


def test_a_named_pipe_in_a_facts_place_is_forgotten(own: Path) -> None:
    (own / "kind").mkdir(parents=True)
    os.mkfifo(own / "kind" / "key.json")
    assert recall("kind", "key") is None


def test_an_error_names_the_file_that_was_meant(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as caught, replacing(tmp_path / "folder") as file:
        file.write(b"x")
    assert caught.value.filename == str(tmp_path / "folder")
    with pytest.raises(OSError, match="no-such") as caught_too, replacing(Path("/proc/no-such")):
        pass
    assert caught_too.value.filename == "/proc/no-such"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
