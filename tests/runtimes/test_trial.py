from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from edgespec.models.errors import ModelFileError
from edgespec.models.gguf import read_header
from edgespec.models.gguf_check import check_header
from edgespec.runtimes import trial
from edgespec.runtimes.trial import ensure_tried


def changed(source: Path, target: Path, **fields: object) -> Path:
    """A copy of a GGUF with some metadata values overwritten in place (of the same type and size)."""
    target.write_bytes(source.read_bytes())
    reader = gguf.GGUFReader(target, "r+")
    for name, value in fields.items():
        field = reader.fields[name.replace("__", ".")]
        field.parts[field.data[0]][:] = value
    reader.data.flush()
    return target


def test_a_good_file_passes_and_is_remembered(tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EDGESPEC_CACHE", str(tmp_path))
    header = read_header(tiny)
    ensure_tried(header)

    def forbidden(*_args: object, **_options: object) -> None:
        raise AssertionError("tried again")

    monkeypatch.setattr(trial.subprocess, "run", forbidden)
    ensure_tried(header)


def test_what_llama_cpp_refuses_is_reported_in_one_line(tiny: Path, tmp_path: Path) -> None:
    path = changed(tiny, tmp_path / "odd.gguf", llama__embedding_length=128)
    header = read_header(path)
    check_header(header)
    with pytest.raises(ModelFileError, match=r"odd\.gguf") as caught:
        ensure_tried(header)
    assert "\n" not in str(caught.value)


def test_a_crash_of_llama_cpp_does_not_take_us_with_it(tiny: Path, tmp_path: Path) -> None:
    # a head count that doesn't divide: ggml asserts, and ends the process
    for name, value in (("llama__attention__head_count_kv", 3), ("llama__rope__dimension_count", 7)):
        path = changed(tiny, tmp_path / f"{value}.gguf", **{name: value})
        with pytest.raises(ModelFileError, match=path.name):
            ensure_tried(read_header(path))


def test_weights_that_are_not_numbers_are_found(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "nan.gguf"
    path.write_bytes(tiny.read_bytes())
    reader = gguf.GGUFReader(path, "r+")
    tensor = next(t for t in reader.tensors if t.name == "output_norm.weight")
    tensor.data[:] = np.nan
    reader.data.flush()
    with pytest.raises(ModelFileError, match="finite"):
        ensure_tried(read_header(path))


def test_a_child_that_hangs_is_ended(tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EDGESPEC_CACHE", str(tmp_path))
    monkeypatch.setattr(trial, "_BASE_SECONDS", 0.5)
    real = subprocess.run

    def hanging(command: list[str], **options: object) -> object:
        return real([sys.executable, "-c", "import time; time.sleep(60)"], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(trial.subprocess, "run", hanging)
    with pytest.raises(ModelFileError, match="hangs"):
        ensure_tried(read_header(tiny))


def test_an_error_of_our_own_in_the_child_is_one_line_too(tiny: Path) -> None:
    code = (
        "import sys\nfrom edgespec.runtimes import trial\n"
        "def fails(path): raise IndexError('list index\\nout of range')\n"
        f"trial._trial = fails; sys.argv = ['trial', {str(tiny)!r}]; sys.exit(trial.main())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.splitlines() == [f"{tiny}: the trial of it failed: IndexError: list index out of range"]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no alarm")
def test_a_child_whose_parent_was_killed_ends_by_itself(tiny: Path) -> None:
    code = (
        "import sys, time\nfrom edgespec.runtimes import trial\n"
        f"trial._BASE_SECONDS = 0.5; trial._trial = lambda path: time.sleep(60); sys.argv = ['trial', {str(tiny)!r}]\n"
        "sys.exit(trial.main())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=30)
    assert result.returncode in trial._TIME_UP
