"""Peak memory of `edgespec generate` against what can't be avoided: model file, KV cache and compute buffer.

python -m scripts.check_memory MODEL [--ctx 4096]
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click

from edgespec.loading import load
from edgespec.runtimes.llama_library import LOG


def buffers(path: Path, ctx: int) -> dict[str, float]:
    """Bytes of the KV cache and of the compute buffers, as llama.cpp logs them."""
    load(path, strategy="plain", ctx=ctx).close()
    found = {"KV": 0.0, "compute": 0.0}
    for _, line in LOG.lines:
        match = re.search(r"(KV|compute) buffer size =\s*([\d.]+) MiB", line)
        if match:
            found[match[1]] += float(match[2]) * 2**20
    return found


@click.command(help=__doc__)
@click.argument("model", type=click.Path(path_type=Path, exists=True))
@click.option("--ctx", default=4096)
@click.option("--strategy", default="plain")
def main(model: Path, ctx: int, strategy: str) -> None:
    needed = buffers(model, ctx)
    # a prompt of some length, so that the prefill's buffers are in use too
    prompt = "Summarise this. " + "The quick brown fox jumps over the lazy dog. " * 60
    command = [sys.executable, "-m", "edgespec.cli.main", "generate", str(model), "-p", prompt, "-n", "32", "--json",
               "--ctx", str(ctx), "--strategy", strategy]  # fmt: skip
    peak = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["stats"]["peak_memory_bytes"]
    parts = {"file": float(model.stat().st_size), **needed}
    total = sum(parts.values())
    listing = " + ".join(f"{name} {size / 2**20:.0f}" for name, size in parts.items())
    click.echo(f"{model.name}, context {ctx}: peak {peak / 2**20:.0f} MiB, {peak / total - 1:+.1%} over {listing} MiB")


if __name__ == "__main__":
    main()
