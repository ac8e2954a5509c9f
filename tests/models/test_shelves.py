"""Models found on this machine, on shelves built as Ollama and LM Studio build theirs."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from edgespec.models.errors import ModelFileError, UsageError
from edgespec.models.resolve import resolve_model
from edgespec.models.shelves import ShelvedModel, shelved_models


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of its own, with nothing in it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("EDGESPEC_MODELS", str(tmp_path / "own"))
    monkeypatch.setenv("EDGESPEC_CACHE", str(tmp_path / "cache"))
    for name in ("OLLAMA_MODELS", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(path: Path, content: bytes = b"GGUF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def ollama(models: Path, name: str, content: bytes = b"GGUF of ollama", **changes: Any) -> Path:
    """A model as Ollama stores it; returns the blob."""
    digest = hashlib.sha256(content).hexdigest()
    blob = written(models / "blobs" / f"sha256-{digest}", content)
    layer = {
        "mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}", "size": len(content),
    } | changes  # fmt: skip
    other = {"mediaType": "application/vnd.ollama.image.template", "digest": f"sha256:{'0' * 64}", "size": 3}
    manifest = {"schemaVersion": 2, "config": other, "layers": [other, layer]}
    written(models / "manifests" / name, json.dumps(manifest).encode())
    return blob


def names(shelf: str) -> list[str]:
    return [model.name for model in shelved_models() if model.shelf == shelf]


def test_an_empty_machine_has_no_models(home: Path) -> None:
    assert shelved_models() == []


def test_own_models_are_packs_and_files(home: Path) -> None:
    written(home / "own/coder/edgespec.json", b"{}")
    written(home / "own/coder/target.gguf", b"12345")
    written(home / "own/small.gguf", b"123")
    written(home / "own/notes.txt")
    (home / "own/empty").mkdir()
    assert shelved_models() == [
        ShelvedModel("coder", home / "own/coder", 7, "edgespec"),
        ShelvedModel("small", home / "own/small.gguf", 3, "edgespec"),
    ]


def test_ollamas_models_have_the_names_that_ollama_gives_them(home: Path) -> None:
    models = home / ".ollama/models"
    blob = ollama(models, "registry.ollama.ai/library/llama3.2/1b")
    ollama(models, "registry.ollama.ai/somebody/tuned/latest", b"other")
    ollama(models, "hf.co/owner/Repo-GGUF/Q4_K_M", b"third")
    assert names("ollama") == ["hf.co/owner/Repo-GGUF:Q4_K_M", "llama3.2:1b", "somebody/tuned:latest"]
    assert resolve_model("llama3.2:1b") == blob


def test_ollamas_folder_may_be_elsewhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(home / "elsewhere"))
    ollama(home / ".ollama/models", "registry.ollama.ai/library/old/latest")
    ollama(home / "elsewhere", "registry.ollama.ai/library/new/latest")
    assert names("ollama") == ["new:latest"]


@pytest.mark.parametrize(
    "changes",
    [
        {"digest": "sha256:" + "0" * 64}, {"digest": "sha256:../../../etc/passwd"}, {"digest": None}, {"digest": 3},
        {"size": 1}, {"size": None}, {"mediaType": "application/vnd.ollama.image.projector"},
    ],
)  # fmt: skip
def test_a_manifest_whose_model_is_not_whole_is_left_out(home: Path, changes: dict[str, Any]) -> None:
    ollama(home / ".ollama/models", "registry.ollama.ai/library/broken/latest", **changes)
    assert shelved_models() == []


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"3", b"{}", b'{"layers": 3}', b'{"layers": [3, null, {}]}', b"\xff", b"[" * 100_000],
)
def test_damaged_manifests_are_left_out(home: Path, content: bytes) -> None:
    written(home / ".ollama/models/manifests/registry.ollama.ai/library/x/latest", content)
    assert shelved_models() == []


def test_pipes_and_endless_files_are_not_read(home: Path) -> None:
    folder = home / ".ollama/models/manifests/registry.ollama.ai/library/x"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "pipe")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "loop").symlink_to(folder / "loop")
    assert shelved_models() == []


def test_lm_studios_models_are_files_of_a_publisher(home: Path) -> None:
    path = written(home / ".lmstudio/models/owner/Repo/model-Q4_K_M.gguf")
    written(home / ".lmstudio/models/owner/Repo/mmproj-model.gguf")
    written(home / ".lmstudio/models/owner/Repo/big-00001-of-00002.gguf")
    written(home / ".lmstudio/models/owner/Repo/big-00002-of-00002.gguf")
    written(home / ".lmstudio/models/owner/Repo/readme.md")
    written(home / ".cache/lm-studio/models/old/Repo/m.gguf")
    assert names("lmstudio") == ["old/Repo/m", "owner/Repo/model-Q4_K_M"]
    assert resolve_model("owner/repo/MODEL-q4_k_m") == path


def test_what_the_hub_gave_is_found_by_its_name_there(home: Path) -> None:
    repository = home / ".cache/huggingface/hub/models--owner--small"
    blob = written(repository / "blobs/abc")
    link = repository / "snapshots/0123/small-Q4_0.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    (link.parent / "gone-Q8_0.gguf").symlink_to(repository / "blobs/gone")
    written(home / ".cache/huggingface/hub/datasets--owner--small/snapshots/0/x.gguf")
    assert shelved_models() == [ShelvedModel("owner/small:small-Q4_0", link, 4, "hub")]
    assert resolve_model("owner/small:small-Q4_0") == link


def test_a_path_comes_before_a_name(home: Path) -> None:
    written(home / "own/coder.gguf")
    assert resolve_model("coder") == home / "own/coder.gguf"
    written(home / "coder", b"a file of that name in the working folder")
    assert resolve_model("coder") == Path("coder")


def test_what_looks_like_a_path_is_one(home: Path) -> None:
    written(home / "own/x.gguf")
    for name in ("x.gguf", "./x", "~/x", "/tmp/none/x"):
        assert not resolve_model(name).exists()
    assert resolve_model(Path("x")) == Path("x")


def test_latest_may_be_left_out_and_exact_case_wins(home: Path) -> None:
    blob = ollama(home / ".ollama/models", "registry.ollama.ai/library/qwen/latest")
    assert resolve_model("qwen") == blob
    written(home / "own/Model.gguf")
    written(home / "own/model.gguf")
    assert resolve_model("Model").name == "Model.gguf"
    assert resolve_model("model").name == "model.gguf"


def test_an_unknown_name_suggests_those_that_are_alike(home: Path) -> None:
    written(home / "own/qwen-coder.gguf")
    with pytest.raises(ModelFileError, match=r"qwen-codr.*did you mean qwen-coder\?"):
        resolve_model("qwen-codr")
    with pytest.raises(ModelFileError, match="edgespec list"):
        resolve_model("entirely different")
    with pytest.raises(UsageError):
        resolve_model(3)  # type: ignore[arg-type]
