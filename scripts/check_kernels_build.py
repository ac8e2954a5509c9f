"""Do the kernels' instruction sets agree, and do they touch only what is theirs? Built by itself and run, without ggml.

    python -m scripts.check_kernels_build          with address and undefined-behaviour sanitizers, for this processor
    python -m scripts.check_kernels_build --arm    for ARM, emulated: needs aarch64-linux-gnu-g++ and qemu-aarch64

All that run are held against plain C++ on random weights of all types; products must have the same bits.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import click

_ROOT = Path(__file__).parent.parent
_KERNELS = _ROOT / "runtimes" / "kernels"
_FLAGS = ["-std=c++17", "-O2", "-g1", "-ffp-contract=off", "-pthread", "-w", f"-I{_KERNELS}"]
_SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]


@click.command(help=__doc__)
@click.option("--arm", is_flag=True)
@click.option("--compiler", help="Instead of c++, or of aarch64-linux-gnu-g++.")
def main(arm: bool, compiler: str | None) -> None:
    sources = [*sorted(_KERNELS.glob("*.cpp")), _ROOT / "scripts" / "native" / "against_plain.cpp"]
    compiler = compiler or ("aarch64-linux-gnu-g++" if arm else "c++")
    # a sanitizer doesn't run in the emulator
    extra = ["-static"] if arm else _SANITIZERS
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "against_plain"
        subprocess.run([compiler, *_FLAGS, *extra, *map(str, sources), "-o", str(program)], check=True)
        command = ["qemu-aarch64", "-cpu", "max", str(program)] if arm else [str(program)]
        sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
