"""A model runs on our kernels only where they were seen to say what llama.cpp says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgespec.models.gguf import read_header
from edgespec.runtimes import RuntimeOptions, runtime_class
from edgespec.runtimes.kernels import kernels
from edgespec.runtimes.kernels.trial import fit
from edgespec.runtimes.llamacpp import LlamaCpp

pytestmark = pytest.mark.skipif(kernels().path is None, reason=f"no kernels: {kernels().reason}")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_CACHE", str(tmp_path / "cache"))


def loaded(path: Path, name: str = "llamacpp", **options: object) -> LlamaCpp:
    runtime = runtime_class(name).load(path, RuntimeOptions(ctx=64, **options))  # type: ignore[arg-type]
    assert isinstance(runtime, LlamaCpp)
    runtime.close()
    return runtime


def test_a_good_model_runs_on_the_kernels(tiny: Path) -> None:
    assert loaded(tiny).kernels == kernels().identity
    assert loaded(tiny, repack=False).kernels is None
    assert loaded(tiny, "llamacpp-stock").kernels is None


def test_where_the_trial_fails_llama_cpps_own_code_runs_from_then_on(tiny: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    shutil.copy(tiny, model)
    header = read_header(model)
    model.unlink()  # so the child fails
    assert not fit(header, kernels().identity)
    shutil.copy(tiny, model)
    assert not fit(header, kernels().identity)
    assert loaded(model).kernels is None
    assert fit(header, "another build")
