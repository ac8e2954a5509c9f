"""`edgespec generate`: answer one prompt."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from edgespec.models.errors import UsageError

from .options import loaded, model_options, sampling_options


@click.command("generate")
@model_options
@click.option("-p", "--prompt", help="The prompt.")
@click.option(
    "--file", type=click.Path(path_type=Path, allow_dash=True), help="Read the prompt from a file; - is standard input."
)
@click.option("--raw", is_flag=True, help="Continue the text as it is, without the model's chat template.")
@click.option("--deadline", "deadline_s", type=click.FloatRange(0), help="End the answer after so many seconds.")
@click.option("--prediction", type=click.Path(path_type=Path), help="File with text that the answer will resemble.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@sampling_options(temperature=0.0)
def command(model: Path | None, prompt: str | None, file: Path | None, as_json: bool, prediction: Path | None,
            **options: Any) -> None:  # fmt: skip
    """Answer one prompt with MODEL, a GGUF file or a pack.

    The prompt comes from -p, --file, or standard input. MODEL left out means the small default model.
    """
    text = _prompt(prompt, file)
    if prediction is not None:
        options["prediction"] = _read(prediction)
    with loaded(model, options) as ready:
        if as_json:
            click.echo(json.dumps(ready.complete(text, **options).to_json(), ensure_ascii=False))
            return
        for event in ready.generate(text, **options):
            click.echo(event.text, nl=False)
            sys.stdout.flush()
        click.echo()


def _prompt(prompt: str | None, file: Path | None) -> str:
    if prompt is not None and file is not None:
        raise UsageError("give the prompt with -p or with --file, not both")
    if prompt is not None:
        return prompt
    if file is None and sys.stdin.isatty():
        raise UsageError("no prompt; give one with -p, --file or on standard input")
    return _read(Path("-") if file is None else file)


def _read(path: Path) -> str:
    name = "standard input" if str(path) == "-" else str(path)
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name}: isn't UTF-8 text (byte {error.start} is 0x{data[error.start]:02x}); convert it first"
        ) from None
    except OSError as error:
        raise UsageError(f"{name}: can't be read: {error.strerror or error}") from None
