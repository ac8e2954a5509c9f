"""Throws damaged model files at `edgespec generate`: each must end in a clear error or a right answer, never in a
traceback, an abort or a hang.

    python -m scripts.check_hostile [MODEL] [--mutations 200]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import click
import numpy as np

from edgespec.models.gguf import read_header

TIMEOUT_S = 120


def mutated(data: bytes, header_size: int, seed: int) -> bytes:
    """The file with 1 to 4 bytes of its header changed, half of the time to the extremes that break parsers."""
    rng = np.random.default_rng(seed)
    result = bytearray(data)
    # most of a header is token texts; half of the changes go to the numbers and names before and after them
    regions = [(0, min(3000, header_size)), (max(0, header_size - 20_000), header_size), (0, header_size)]
    for _ in range(int(rng.integers(1, 5))):
        start, end = regions[int(rng.integers(len(regions)))]
        value = (0, 255, 127, 128)[int(rng.integers(4))] if rng.random() < 0.5 else int(rng.integers(256))
        result[int(rng.integers(start, end))] = value
    return bytes(result)


def verdict(path: Path) -> tuple[str, str]:
    """What one run ended in, and its last line of standard error."""
    command = [sys.executable, "-m", "edgespec.cli.main", "generate", str(path), "-p", "Hi", "-n", "2", "--ctx", "64",
               "--strategy", "plain", "--raw"]  # fmt: skip
    try:
        result = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return "HANG", ""
    err = result.stderr.decode("utf-8", "replace").strip()
    last = err.splitlines()[-1] if err else ""
    if "Traceback" in err or "This is a bug" in err:
        return "TRACEBACK", last
    if result.returncode == 0:
        return "answer", last
    if result.returncode in (1, 2) and last.startswith("Error: ") and path.name in err:
        return "clear error", last
    return f"exit code {result.returncode}", last


@click.command(help=__doc__)
@click.argument("model", type=click.Path(path_type=Path, exists=True), default=Path("tests/data/tiny.gguf"))
@click.option("--mutations", default=200)
@click.option("--show", is_flag=True, help="Print every error.")
def main(model: Path, mutations: int, show: bool) -> None:
    data, header = model.read_bytes(), read_header(model)
    rng = np.random.default_rng(0)
    cases = {
        "empty": b"",
        "random": rng.bytes(200_000),
        "magic and noise": b"GGUF" + rng.bytes(200_000),
        **{f"truncated at {share} %": data[: len(data) * share // 100] for share in (1, 10, 50, 90, 99)},
        **{f"mutation {seed}": mutated(data, header.data_offset, seed) for seed in range(mutations)},
    }
    counts = Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        for name, content in cases.items():
            path = Path(folder, "hostile.gguf")
            path.write_bytes(content)
            kind, line = verdict(path)
            counts[kind] += 1
            if show or kind not in ("answer", "clear error"):
                click.echo(f"{kind}: {name}: {line}")
    click.echo(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    if set(counts) - {"answer", "clear error"}:
        sys.exit(1)


if __name__ == "__main__":
    main()
