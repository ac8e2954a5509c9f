"""`edgespec list`: the models on this machine."""

from __future__ import annotations

import json

import click

from edgespec.models.shelves import own_shelf, shelved_models

from .streams import emit
from .tables import file_size, table


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array instead of a table.")
def command(as_json: bool) -> None:
    """List the models that a command finds by name: our own, and those of the hub, Ollama and LM Studio."""
    found = shelved_models()
    if as_json:
        emit(json.dumps([{"name": m.name, "path": str(m.path), "bytes": m.size, "shelf": m.shelf} for m in found]))
    elif found:
        emit(table(("name", "size", "from"), [(m.name, file_size(m.size), m.shelf) for m in found]))
    else:
        emit(
            f"No models yet. `edgespec chat` fetches a small one; put packs or GGUF files of yours into {own_shelf()}."
        )
