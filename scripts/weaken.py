"""Makes a weaker copy of a GGUF by leaving out layers: a draft with the same vocabulary that errs often.

python -m scripts.weaken MODEL OUT --drop 12,13,14
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import click

from edgespec.runtimes.llama_library import LOG, llama


@click.command(help=__doc__)
@click.argument("model", type=click.Path(path_type=Path, exists=True))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--drop", required=True, help="Layers to leave out, separated by commas.")
def main(model: Path, out: Path, drop: str) -> None:
    library = llama()
    layers = [int(layer) for layer in drop.split(",")]
    params = library.llama_model_quantize_default_params()
    params.only_copy = True
    params.prune_layers = (ctypes.c_int32 * (len(layers) + 1))(*layers, -1)
    if library.llama_model_quantize(str(model).encode(), str(out).encode(), params):
        raise click.ClickException(LOG.complaint())


if __name__ == "__main__":
    main()
