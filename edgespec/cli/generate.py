"""`edgespec generate`: answer one prompt."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import click

from edgespec.models.checks import check_text, user_path
from edgespec.models.errors import UsageError

from .options import loaded, model_options, sampling_options
from .streams import MOST_BYTES, decoded, emit, harmless


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
def command(model: str | None, prompt: str | None, file: Path | None, as_json: bool, prediction: Path | None,
            **options: Any) -> None:  # fmt: skip
    """Answer one prompt with MODEL: a GGUF file, a pack, or a name from `edgespec list`.

    The prompt comes from -p, --file, or standard input. MODEL left out means the small default model.
    """
    if file is not None and str(file) == "-" and prediction is not None and str(prediction) == "-":
        raise UsageError("--file and --prediction can't both be standard input")
    text = _prompt(prompt, file)
    if prediction is not None:
        options["prediction"] = _read("--prediction", prediction)
    with loaded(model, options) as ready:
        if as_json:
            emit(json.dumps(ready.complete(text, **options).to_json(), ensure_ascii=False))
            return
        for event in ready.generate(text, **options):
            emit(harmless(event.text), newline=False)
        emit("")


def _prompt(prompt: str | None, file: Path | None) -> str:
    if prompt is not None and file is not None:
        raise UsageError("give the prompt with -p or with --file, not both")
    if prompt is not None:
        check_text("-p", prompt)
    elif file is None and sys.stdin.isatty():
        raise UsageError("no prompt; give one with -p, --file or on standard input")
    else:
        prompt = _read("--file", Path("-") if file is None else file)
    if not prompt.strip():
        raise UsageError("the prompt is empty; give one with -p, --file or on standard input")
    return prompt


def _read(option: str, path: Path) -> str:
    name = "standard input" if str(path) == "-" else str(user_path(option, path))
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if str(path) == "-" else open(name, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{name}: can't be read: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise UsageError(f"{name}: holds more than {MOST_BYTES >> 20} MiB, which no context holds")
    return decoded(name, data)
