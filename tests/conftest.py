"""What all tests share: small real models, and a cache folder of their own."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The tests measure, try and fetch into a folder that nothing else sees."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("EDGESPEC_CACHE")
    os.environ["EDGESPEC_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["EDGESPEC_CACHE"]
    else:
        os.environ["EDGESPEC_CACHE"] = before


@pytest.fixture(scope="session")
def tiny() -> Path:
    """A random Llama of 3 layers with 1,024 real tokens."""
    return DATA / "tiny.gguf"


@pytest.fixture(scope="session")
def tiny_draft() -> Path:
    """The first layer of `tiny`: the same vocabulary, another opinion."""
    return DATA / "tiny-draft.gguf"


@pytest.fixture(scope="session")
def tiny_other() -> Path:
    """A model with the same tokens under other ids."""
    return DATA / "tiny-other.gguf"


@pytest.fixture(scope="session")
def smollm() -> Path:
    """SmolLM2-135M-Instruct, the default model."""
    from edgespec.models.registry import default_model_path

    return default_model_path()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """No callbacks of other tools at garbage collection (hypothesis has one): an interrupt that hits them is lost."""
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks.extend(callbacks)
