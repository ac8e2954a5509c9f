"""Quantization through llama.cpp's own `llama_model_quantize`, in a child process.

As a child: python -m edgespec.convert.quantize SOURCE OUT TYPE IMATRIX
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgespec.models.child import Report, run_child, work_as_child
from edgespec.models.errors import ModelFileError
from edgespec.models.gguf import GGUFHeader
from edgespec.runtimes.devices import default_threads
from edgespec.runtimes.llama_library import LOG, llama

QUANT_TYPES = {
    "F32": (0, 32.0), "F16": (1, 16.0), "BF16": (32, 16.0), "Q8_0": (7, 8.5), "Q6_K": (18, 6.6), "Q5_K_M": (17, 5.7),
    "Q4_K_M": (15, 4.9), "Q4_0": (2, 4.6), "Q4_1": (3, 5.1),
}  # fmt: skip
"""Name -> llama.cpp's number (llama.h, enum llama_ftype) and about how many bits a weight takes."""
FLOATS = ("F64", "F32", "F16", "BF16")
_TENSOR = re.compile(r"\[ *(\d+)/ *(\d+)\] +(\S+) ")
Progress = Callable[[int, int, str], None]
"""Called with the number of a tensor, how many there are, and its name."""


def quantize(
    source: Path, out: Path, quant: str, imatrix: Path | None = None, progress: Progress | None = None
) -> None:
    """Write a GGUF's weights in another type.

    Memory: the largest tensor, as float32 and quantized.

    Args:
        quant: one of `QUANT_TYPES`.
        imatrix: an importance matrix as `compute_imatrix` writes it.

    Raises:
        ModelFileError: llama.cpp refused the file, or the disk is full.
    """
    assert quant in QUANT_TYPES

    def heard(message: dict[str, Any]) -> None:
        if progress is not None:
            progress(message["number"], message["count"], message["tensor"])

    run_child(__name__, [str(source), str(out), quant, str(imatrix or "")], heard)


def main_type(header: GGUFHeader) -> str:
    """The type that holds most of a model's weights."""
    counts = Counter[str]()
    for tensor in header.tensors:
        counts[tensor.type.name] += tensor.weights
    return counts.most_common(1)[0][0]


def is_low_bit(header: GGUFHeader) -> bool:
    """Whether most of it was quantized already."""
    return main_type(header) not in (*FLOATS, "Q8_0")


def replaced_types(header: GGUFHeader, quant: str) -> str | None:
    """What stands where the type asked for needs rows of a multiple of 256, as people should be told; or None."""
    if "_K" not in quant:
        return None
    odd = [tensor for tensor in header.tensors if len(tensor.shape) > 1 and tensor.shape[0] % 256]
    used = sorted({tensor.type.name for tensor in odd} - set(FLOATS))
    if not used:
        return None
    widths = " and ".join(map(str, sorted({tensor.shape[0] for tensor in odd})))
    matrices = sum(len(tensor.shape) > 1 for tensor in header.tensors)
    return (
        f"{quant} needs rows of a multiple of 256, and {len(odd)} of {matrices} matrices have rows of {widths}: "
        f"those are {', '.join(used)}"
    )


def _work(report: Report) -> None:
    source, out, quant, imatrix = sys.argv[1:]
    library = llama()
    reporter = library.llama_log_callback(_Reporter(report))
    library.llama_log_set(reporter, ctypes.c_void_p(0))
    params = library.llama_model_quantize_default_params()
    params.ftype, params.nthread, params.allow_requantize = QUANT_TYPES[quant][0], default_threads(), True
    matrix = _imatrix_data(Path(imatrix)) if imatrix else None
    if matrix is not None:
        params.imatrix = matrix
    if library.llama_model_quantize(os.fsencode(source), os.fsencode(out), params):
        raise ModelFileError(f"{source}: llama.cpp can't write it as {quant}: {LOG.complaint()}")


class _Reporter:
    """Takes llama.cpp's log: reports the tensors it names, and leaves the rest to `LOG`."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def __call__(self, level: int, text: bytes | None, user_data: Any) -> None:
        LOG(level, text, user_data)
        found = _TENSOR.search((text or b"").decode("utf-8", "replace"))
        if found:
            self._report(number=int(found[1]), count=int(found[2]), tensor=found[3])


def _imatrix_data(path: Path) -> Any:
    """The array that llama.cpp wants: one entry a tensor, and an empty one at the end."""
    kind = llama().llama_model_imatrix_data
    with np.load(path, allow_pickle=False) as arrays:
        entries = [(name, np.ascontiguousarray(arrays[name], np.float32)) for name in arrays.files]
    data = (kind * (len(entries) + 1))()
    for entry, (name, values) in zip(data, entries, strict=False):
        entry.name, entry.size = name.encode(), values.size
        entry.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    data.kept = entries  # llama.cpp keeps no copy
    return data


if __name__ == "__main__":
    sys.exit(work_as_child(_work))
