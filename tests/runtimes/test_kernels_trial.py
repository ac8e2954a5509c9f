"""A model runs on our kernels only where they were seen to say what llama.cpp says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import edgespec
from edgespec.models.gguf import read_header
from edgespec.runtimes import RuntimeOptions, runtime_class
from edgespec.runtimes.kernels import kernels
from edgespec.runtimes.kernels.trial import misfit
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
    runtime = loaded(tiny)
    assert runtime.kernels == kernels().identity
    assert not runtime.notice
    assert loaded(tiny, repack=False).kernels is None
    assert loaded(tiny, "llamacpp-stock").kernels is None


def test_where_the_trial_fails_llama_cpps_own_code_runs_from_then_on(tiny: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    shutil.copy(tiny, model)
    header = read_header(model)
    model.unlink()  # so the child fails
    reason = misfit(header, kernels().identity)
    assert reason
    shutil.copy(tiny, model)
    assert misfit(header, kernels().identity) == reason
    assert loaded(model).kernels is None
    notices: list[str] = []
    edgespec.load(model, strategy="plain", notify=notices.append).close()
    assert [line for line in notices if reason in line and "model.gguf runs on llama.cpp's own code" in line]
    assert not loaded(model, "llamacpp-stock").notice
    assert not misfit(header, "another build")
