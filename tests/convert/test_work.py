from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.convert.work import finished, work_folder
from edgespec.models.errors import ModelFileError


def write(path: Path) -> None:
    path.write_text("whole")


def test_it_is_gone_at_the_end(tmp_path: Path) -> None:
    with work_folder(tmp_path / "pack", "a") as work:
        finished(work / "x", write)
        assert work.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_after_an_interrupt_what_is_finished_stays_and_what_is_not_goes(tmp_path: Path) -> None:
    def interrupted(path: Path) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), work_folder(tmp_path / "pack", "a") as work:  # noqa: PT012
        finished(work / "deep" / "x", write)
        finished(work / "deep" / "y", interrupted)
    with work_folder(tmp_path / "pack", "a") as work:
        assert [path.name for path in (work / "deep").iterdir()] == ["x"]
        assert finished(work / "deep" / "x", interrupted).read_text() == "whole"
    assert list(tmp_path.iterdir()) == []


def test_another_conversion_starts_clean(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), work_folder(tmp_path / "pack", "a") as work:  # noqa: PT012
        finished(work / "deep" / "x", write)
        (work / "link").symlink_to(tmp_path)
        raise KeyboardInterrupt
    with work_folder(tmp_path / "pack", "b") as work:
        assert sorted(path.name for path in work.iterdir()) == ["edgespec-state.json", "lock"]


@pytest.mark.parametrize("error", [ModelFileError("no"), OSError(28, "No space left on device")])
def test_a_failure_leaves_nothing(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)), work_folder(tmp_path / "pack", "a") as work:  # noqa: PT012
        finished(work / "x", write)
        raise error
    assert list(tmp_path.iterdir()) == []


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with work_folder(tmp_path / "pack", "a") as work:
        finished(work / "x", write)
        with pytest.raises(ModelFileError, match="another process"), work_folder(tmp_path / "pack", "a"):
            pass
        assert (work / "x").exists()


def test_what_is_not_ours_is_never_deleted(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious").write_text("x")
    (tmp_path / "a").rename(tmp_path / ".pack.work")
    (tmp_path / ".other.work").symlink_to(tmp_path / "b")
    for name in ("pack", "other"):
        with pytest.raises(ModelFileError, match="is in the way"), work_folder(tmp_path / name, "a"):
            pass
    assert (tmp_path / ".pack.work/precious").exists()
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["precious"]


def test_any_error_cleans_up_but_an_interrupt(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), work_folder(tmp_path / "pack", "a"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
