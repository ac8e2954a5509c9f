"""A Hugging Face checkpoint folder: is it whole, is it safe to read, and in which type are its weights?

Nothing is loaded here. Of safetensors files only the headers are read (an eight-byte length and JSON), with the same
distrust as a GGUF's.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgespec.models.checks import shown
from edgespec.models.errors import ModelFileError
from edgespec.models.json_file import read_json
from edgespec.models.manifest import check_name

_MOST_JSON_BYTES = 64 << 20
_MOST_HEADER_BYTES = 100 << 20  # safetensors' own limit
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json", "vocab.txt")
_STAGED = ("*.json", "*.model", "*.jinja", "*.txt", "*.tiktoken", "README.md", "additional_chat_templates/*.jinja")
_MOST_A_BYTE = 8
_SIZES = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was looked at.

    Attributes:
        architecture: the first of config.json's `architectures`.
        shards: the safetensors files.
        lossless: the GGUF type that holds all matrices as they are: F32, F16 or BF16.
        parameters: how many weights there are.
        vocabulary: tokens, as config.json says.
    """

    folder: Path
    architecture: str
    shards: tuple[Path, ...]
    lossless: str
    parameters: int
    vocabulary: int

    @property
    def lossless_bytes(self) -> int:
        """What the weights take in their lossless type."""
        return self.parameters * _SIZES[self.lossless]

    def files(self) -> list[Path]:
        """All files that the result depends on."""
        found = {*self.shards, *(path for pattern in _STAGED for path in self.folder.glob(pattern))}
        return sorted(path for path in found if path.is_file())


def is_checkpoint(folder: Path) -> bool:
    return folder.is_dir() and (folder / "config.json").is_file()


def open_checkpoint(folder: Path) -> Checkpoint:
    """Look at a checkpoint.

    Raises:
        ModelFileError: a file is missing, cut off or not what it should be, or the weights are pickles.
    """
    config = _json(folder / "config.json")
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
        raise ModelFileError(f"{folder / 'config.json'}: names no architecture; a language model's does")
    shards = _shards(folder)
    if not any((folder / name).is_file() for name in _TOKENIZERS) and not any(folder.glob("*.tiktoken")):
        raise ModelFileError(
            f"{folder}: has no tokenizer ({', '.join(_TOKENIZERS[:3])}); copy the original model's files"
        )
    types: set[str] = set()
    parameters = 0
    count = largest = 0
    for shard in shards:
        for dtype, shape in _tensors(shard):
            count, largest = count + 1, max([largest, *shape])
            parameters += math.prod(shape)
            if len(shape) > 1:  # vectors are float32 in every GGUF
                types.add(dtype)
    _check_sizes(folder / "config.json", config, count, largest)
    text = config.get("text_config")
    vocabulary = config.get("vocab_size") or (text.get("vocab_size") if isinstance(text, dict) else None)
    return Checkpoint(
        folder,
        architectures[0],
        shards,
        _lossless(types),
        parameters,
        vocabulary if isinstance(vocabulary, int) else largest,
    )


def _check_sizes(path: Path, config: dict[str, Any], tensors: int, largest: int) -> None:
    """Hold what a converter counts by against the weights that there are: it would not end on 10**9 layers."""
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        for key, most in (("num_hidden_layers", tensors), ("vocab_size", largest), ("hidden_size", largest)):
            value = part.get(key, 0)
            if not isinstance(value, int) or value > most:
                raise ModelFileError(
                    f"{path}: {key} is {shown(value)}, which these weights can't be; download it again"
                )


def _lossless(types: Iterable[str]) -> str:
    """What is stored in 8 bits or packed becomes bfloat16, which llama.cpp's converter makes of it."""
    floats = set(types) & {"F64", "F32", "F16", "BF16"}
    if not floats:
        return "BF16"
    return floats.pop() if len(floats) == 1 and floats <= {"F16", "BF16"} else "F32"


def _shards(folder: Path) -> tuple[Path, ...]:
    index = folder / _INDEX
    if index.is_file():
        weights = _json(index).get("weight_map")
        if not isinstance(weights, dict) or not weights or not all(isinstance(name, str) for name in weights.values()):
            raise ModelFileError(f"{index}: has no weight_map of file names; download it again")
        names = sorted(set(weights.values()))
        for name in names:
            check_name(name, index)
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise ModelFileError(
                f"{folder}: {len(missing)} of {len(names)} files with weights are missing ({', '.join(missing[:3])}); "
                "download them again"
            )
        return tuple(folder / name for name in names)
    shards = sorted(folder.glob("*.safetensors"))
    if (folder / _SINGLE) in shards:
        return (folder / _SINGLE,)
    if len(shards) == 1:
        return (shards[0],)
    if shards:
        raise ModelFileError(f"{folder}: has {len(shards)} safetensors files but no {_INDEX}; download that too")
    pickles = [path.name for pattern in _PICKLES for path in folder.glob(pattern)]
    if pickles:
        raise ModelFileError(
            f"{folder}: the weights are pickles ({pickles[0]}), which can run any code when they are read; get the "
            "model as safetensors (most are offered so), or convert it where that does no harm"
        )
    raise ModelFileError(f"{folder}: has no weights (model.safetensors); is the download complete?")


def _tensors(path: Path) -> list[tuple[str, list[int]]]:
    """Type and shape of each tensor of a safetensors file, whose extents are held against the file's size."""
    problem = ModelFileError(f"{path}: isn't a whole safetensors file; download it again")
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _MOST_HEADER_BYTES):
                raise problem
            header = json.loads(file.read(length))
    except OSError as error:
        raise ModelFileError(f"{path}: can't be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise problem from None
    if not isinstance(header, dict):
        raise problem
    tensors = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
            whole = all(isinstance(n, int) and n >= 0 for n in (start, end, *shape))
        except (TypeError, KeyError, ValueError):
            raise problem from None
        if not whole or not isinstance(dtype, str) or not start <= end <= size - 8 - length:
            raise problem
        if math.prod(shape) > (end - start) * _MOST_A_BYTE:
            raise problem
        tensors.append((dtype, shape))
    return tensors


def chat_template(checkpoint: Checkpoint) -> str | None:
    """The checkpoint's chat template, which newer ones keep in a file of its own."""
    path = checkpoint.folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text("utf-8", "replace") if path.stat().st_size < _MOST_JSON_BYTES else None
    config = checkpoint.folder / "tokenizer_config.json"
    template = _json(config).get("chat_template") if config.is_file() else None
    if isinstance(template, list):  # several, by name
        template = next(
            (t.get("template") for t in template if isinstance(t, dict) and t.get("name") == "default"), None
        )
    return template if isinstance(template, str) else None


def stage(checkpoint: Checkpoint, folder: Path) -> None:
    """Lay out in `folder` what the converter may see: weights, tokenizer and configuration, but no code.

    Files are linked where that works. `auto_map` is left out of the JSON files: it names Python files that transformers
    would run, here or from the hub.
    """
    folder.mkdir(parents=True)
    for source in checkpoint.files():
        target = folder / source.relative_to(checkpoint.folder)
        target.parent.mkdir(exist_ok=True)
        if source.name in ("config.json", "tokenizer_config.json"):
            content = {key: value for key, value in _json(source).items() if key != "auto_map"}
            target.write_text(json.dumps(content), "utf-8")
        else:
            _link(source.resolve(), target)


def _link(source: Path, target: Path) -> None:
    try:
        target.symlink_to(source)
    except OSError:  # Windows, for most users
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path, _MOST_JSON_BYTES, "download it again")
    except FileNotFoundError:
        raise ModelFileError(f"{path}: no such file; download the checkpoint again") from None
    if not isinstance(content, dict):
        raise ModelFileError(f"{path}: isn't a JSON object; download it again")
    return content
