"""The check of a converted model against its source: same token ids, same special tokens, nearly the same logits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgespec.models.child import run_child
from edgespec.models.errors import ModelFileError
from edgespec.models.gguf import GGUFHeader
from edgespec.models.gguf_check import checked_header
from edgespec.runtimes.devices import list_devices
from edgespec.runtimes.trial import ensure_tried

from .agreement import Agreement, compare, context_of, encoded, leading_bos, scored
from .checkpoint import Checkpoint
from .quantize import FLOATS
from .texts import PASSAGE, snippets
from .work import finished

_LIMITS = {
    "F32": 0.005, "F16": 0.02, "BF16": 0.05, "Q8_0": 0.15, "Q6_K": 0.25, "Q5_K_M": 0.5, "Q4_K_M": 0.7, "Q4_0": 0.8,
    "Q4_1": 0.7,
}  # fmt: skip
"""Type -> the largest `Agreement.error` that is still only rounding: several times what real models show; models that
have nothing to do with each other are near 1.4, and one matrix in the wrong place brings most of that."""
_ROUNDED_REFERENCE = 0.1
"""The same where the reference itself was computed with rounded numbers."""
_MEMORY_SHARE = 0.8


class Reference(NamedTuple):
    """What the source says.

    Attributes:
        texts: what was tokenized, of which the last one is scored.
        ids: token ids of each text.
        bos: the token that the source puts before every text; None: none.
        eos: the token that ends its texts; None: it doesn't say.
        tokens: what was scored.
        logits: a file of float32 logits (tokens, vocabulary).
        by: what computed it, for people.
        rounded: whether it was computed in 16 bits, or with inputs of 8 bits.
    """

    texts: list[str]
    ids: list[list[int]]
    bos: int | None
    eos: int | None
    tokens: list[int]
    logits: Path
    by: str
    rounded: bool = False

    def rows(self) -> Iterator[np.ndarray]:
        return iter(np.load(self.logits, mmap_mode="r", allow_pickle=False))


def texts() -> list[str]:
    return [*snippets(), PASSAGE]


def gguf_reference(path: Path, folder: Path) -> Reference:
    """What a GGUF itself says."""
    ids, vocabulary = encoded(path, texts())
    bos = leading_bos(vocabulary)
    tokens = _passage(ids[-1], bos, context_of(path))

    def score(out: Path) -> None:
        with out.open("wb") as file:  # not mapped: a full disk would end the process
            for i, row in enumerate(scored(path, tokens)):
                if i == 0:
                    header = {"descr": "<f4", "fortran_order": False, "shape": (len(tokens), len(row))}
                    np.lib.format.write_array_header_1_0(file, header)
                file.write(np.asarray(row, "<f4").tobytes())

    logits = finished(folder / "reference.npy", score)
    # llama.cpp multiplies weights of few bits with inputs of 8 bits, floats with floats
    rounded = any(len(tensor.shape) > 1 and tensor.type.name not in FLOATS for tensor in checked_header(path).tensors)
    return Reference(texts(), ids, bos, _eos(path), tokens, logits, "llama.cpp", rounded)


def _eos(path: Path) -> int | None:
    eos = checked_header(path).metadata.get("tokenizer.ggml.eos_token_id")
    return None if eos is None else int(eos)


def checkpoint_reference(
    checkpoint: Checkpoint, staged: Path, lossless: Path, folder: Path
) -> tuple[Reference, str | None]:
    """What transformers says of a checkpoint; where that can't be had, what its lossless GGUF says, and a note of why.

    Raises:
        ModelFileError: its tokenizer can't be loaded.
    """
    free = next((device.memory_free for device in list_devices() if device.kind == "cpu"), 0) * _MEMORY_SHARE
    dtype = "float32" if 4 * checkpoint.parameters < free or checkpoint.lossless == "F32" else "bfloat16"
    length = context_of(lossless)
    too_large = checkpoint.parameters * (4 if dtype == "float32" else 2) >= free
    base = folder / "source"

    def ask(out: Path) -> None:
        (folder / "texts.json").write_text(json.dumps(texts()), "utf-8")
        arguments = [str(staged), dtype, str(0 if too_large else length), str(base), str(folder / "texts.json")]
        notes: list[dict[str, Any]] = []
        run_child("edgespec.convert.checkpoint_reference", arguments, notes.append)
        out.write_text(json.dumps(notes), "utf-8")

    notes = json.loads(finished(folder / "source.asked", ask).read_text("utf-8"))
    said = json.loads(base.with_suffix(".json").read_text("utf-8"))
    if not base.with_suffix(".npy").exists():
        why = "it takes more memory than there is" if too_large else notes[0]["unscored"]
        ours = gguf_reference(lossless, folder)
        return ours._replace(texts=said["texts"], ids=said["ids"], bos=said["bos"], eos=said["eos"]), (
            f"the quantized weights were checked against the unquantized GGUF, not against transformers: {why}"
        )
    tokens = _passage(said["ids"][-1], said["bos"], length)
    by = f"transformers, {dtype}"
    logits, rounded = base.with_suffix(".npy"), dtype != "float32"
    return Reference(said["texts"], said["ids"], said["bos"], said["eos"], tokens, logits, by, rounded), None


def _passage(ids: list[int], bos: int | None, length: int) -> list[int]:
    return [*([] if bos is None else [bos]), *ids][:length]


def check_model(path: Path, quant: str, reference: Reference) -> dict[str, Any]:
    """Hold a converted model against its source.

    Args:
        quant: its type.

    Returns:
        The figures, for the manifest.

    Raises:
        ModelFileError: it isn't the same model: says which figure is out of bounds.
    """
    ensure_tried(checked_header(path))
    found, vocabulary = encoded(path, reference.texts)
    wrong = [i for i, (one, other) in enumerate(zip(found, reference.ids, strict=True)) if one != other]
    if wrong:
        raise ModelFileError(
            f"{path.name}: the tokenizer isn't the source's: {len(wrong)} of {len(found)} texts get other tokens, the "
            f"first is {reference.texts[wrong[0]][:60]!r}; its tokenizer can't be converted as it is"
        )
    bos = leading_bos(vocabulary)
    if bos != reference.bos:
        theirs, ours = ("no BOS" if token is None else f"token {token} as BOS" for token in (reference.bos, bos))
        raise ModelFileError(
            f"{path.name}: the source's tokenizer puts {theirs} before a text, the converted one {ours}; make "
            "add_bos_token in the source's tokenizer_config.json and bos_token_id in its config.json agree with it"
        )
    if reference.eos is not None and _eos(path) != reference.eos:
        raise ModelFileError(
            f"{path.name}: the source's tokenizer ends a text with token {reference.eos}, the converted one with "
            f"{_eos(path)}; make eos_token in the source's tokenizer_config.json and eos_token_id in its config.json "
            "agree"
        )
    agreement = compare(reference.rows(), scored(path, reference.tokens))
    _judge(path, quant, agreement, reference)
    return {"texts": len(found), "reference": reference.by, **agreement.to_json()}


def _judge(path: Path, quant: str, agreement: Agreement, reference: Reference) -> None:
    limit = _LIMITS[quant]
    if reference.rounded:
        limit = max(limit, _ROUNDED_REFERENCE)
    if not agreement.error <= limit:  # NaN, too
        raise ModelFileError(
            f"{path.name}: doesn't say what its source says: its logits are off by {agreement.error:.1%} on average "
            f"(at most {limit:.1%} is rounding), the same top token at {agreement.same_top:.1%} of "
            f"{agreement.positions} positions, KL divergence {agreement.kl:.3g}. The converter doesn't fit this model, "
            "or the type is too small for it"
        )


def check_template(header: GGUFHeader, template: str | None) -> None:
    """Raises `ModelFileError` unless the source's chat template came along."""
    kept = header.metadata.get("tokenizer.chat_template")
    if template is None or not template.strip():
        return
    if not isinstance(kept, str) or kept.split() != template.split():
        raise ModelFileError(
            f"{header.path.name}: the source's chat template got lost on the way; this is a bug, report it"
        )
