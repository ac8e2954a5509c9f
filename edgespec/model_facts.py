"""What a model file says about itself, in the words of a person who chooses one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from edgespec.models.gguf import GGUFHeader
from edgespec.models.gguf_check import checked_header
from edgespec.models.manifest import Pack


def pack_facts(pack: Pack) -> dict[str, Any]:
    """Facts of the target, and where there are any, of the draft and of how the pack was made.

    Raises:
        ModelFileError: a file is missing or damaged.
    """
    facts = {"target": file_facts(pack.target)}
    if pack.draft is not None:
        facts["draft"] = file_facts(pack.draft)
    if pack.made:
        facts["made"] = pack.made
    return facts


def file_facts(path: Path) -> dict[str, Any]:
    """Architecture, size and types of a GGUF file.

    Raises:
        ModelFileError: missing or damaged.
    """
    header = checked_header(path)
    name = header.metadata.get("general.name")
    return {
        "file": str(path),
        "bytes": header.file_size,
        "name": name if isinstance(name, str) else None,
        "architecture": header.architecture,
        "parameters": sum(tensor.weights for tensor in header.tensors),
        "types": _shares(header),
        "context_length": _number(header, "context_length"),
        "layers": _number(header, "block_count"),
        "width": _number(header, "embedding_length"),
        "vocabulary": len(header.metadata["tokenizer.ggml.tokens"]),
        "chat_template": isinstance(header.metadata.get("tokenizer.chat_template"), str),
    }


def _shares(header: GGUFHeader) -> dict[str, float]:
    """For each type of weights its share of the bytes, the largest first.

    A file called Q4_K_M holds several; how much of which says more than its name.
    """
    counts = Counter[str]()
    for tensor in header.tensors:
        counts[tensor.type.name] += tensor.nbytes
    total = sum(counts.values())
    return {name: round(size / total, 4) for name, size in counts.most_common()}


def _number(header: GGUFHeader, name: str) -> int | None:
    value = header.hyperparameter(name)
    return value if isinstance(value, int) else None
