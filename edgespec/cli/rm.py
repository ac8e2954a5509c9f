"""`edgespec rm`: delete a model of our own."""

from __future__ import annotations

import shutil
import sys

import click

from edgespec.models.errors import ModelFileError, UsageError
from edgespec.models.shelves import shelved_models

from .streams import notice
from .tables import file_size


@click.command("rm")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Don't ask.")
def command(name: str, yes: bool) -> None:
    """Delete the model NAME, as `edgespec list` shows it. Files of Ollama and LM Studio are theirs to delete."""
    found = [model for model in shelved_models() if model.name == name]
    own = [model for model in found if model.shelf == "edgespec"]
    if not own:
        owner = f"; {found[0].shelf} keeps it, delete it there" if found else "; see `edgespec list`"
        raise ModelFileError(f"{name}: no model of ours has that name{owner}")
    model = own[0]
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"to delete {model.path} without being asked, add --yes")
        click.confirm(f"Delete {model.path} ({file_size(model.size)})?", abort=True, err=True)
    if model.path.is_dir() and not model.path.is_symlink():
        shutil.rmtree(model.path)
    else:
        model.path.unlink()
    notice(f"deleted {model.path} ({file_size(model.size)})")
