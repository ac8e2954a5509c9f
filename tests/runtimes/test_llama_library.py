from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.models.errors import RuntimeFailure
from edgespec.runtimes import llama_library
from edgespec.runtimes.devices import default_threads, list_devices
from edgespec.runtimes.llama_library import LOG, cpu_features, llama, version


def test_versions_are_named() -> None:
    assert "llama-cpp-python 0." in version()


def test_the_cpu_is_among_the_devices_with_its_memory() -> None:
    cpu = next(device for device in list_devices() if device.kind == "cpu")
    assert 0 < cpu.memory_free <= cpu.memory_total


def test_default_threads_are_at_least_one_and_at_most_the_cpus() -> None:
    import os

    assert 1 <= default_threads() <= (os.cpu_count() or 1)


def test_cpu_features_are_names_that_are_on() -> None:
    assert all(feature and not feature.endswith("=0") for feature in cpu_features())


def test_llama_cpp_is_quiet_and_its_complaints_are_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    library = llama()
    path = tmp_path / "no.gguf"
    path.write_bytes(b"GGUF but not really")
    assert not library.llama_model_load_from_file(str(path).encode(), library.llama_model_default_params())
    assert capfd.readouterr() == ("", "")
    assert LOG.complaint() != "llama.cpp gave no reason"


def test_a_library_without_what_trees_need_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_library, "_NEEDED", ("llama_no_such_call",))
    with pytest.raises(RuntimeFailure, match=r"llama_no_such_call.*0\.3\.36"):
        llama.__wrapped__()
