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
        assert sorted(path.name for path in work.iterdir()) == ["lock", "state.json"]


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
