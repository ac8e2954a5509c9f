"""The importance matrix: which columns of each weight matrix matter, measured on a text.

For a matrix W that is multiplied by inputs x, the error that quantizing W makes in W x grows with the mean of x² in
each column; llama.cpp's quantization takes those means as weights of its least squares. They are collected by watching
the graph while the model reads the text (the same that llama.cpp's own `llama-imatrix` does).

As a child: python -m edgespec.convert.imatrix MODEL TEXT OUT
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from edgespec.models.child import Report, run_child, work_as_child
from edgespec.models.errors import ModelFileError, UsageError
from edgespec.runtimes.devices import default_threads
from edgespec.runtimes.llama_library import LOG, ggml, llama

from .agreement import encoded, leading_bos

_CHUNK, _MOST_CHUNKS = 512, 256
_MOST_BYTES = 64 << 20
_F32, _I32 = 0, 26


def compute_imatrix(model: Path, text: Path, out: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """Write the importance matrix of a GGUF as an `.npz` with one float32 array (columns,) for each matrix.

    Args:
        model: best in its lossless type; its quantized self would do.
        text: a UTF-8 file; the first 131,072 tokens are read.
        progress: called with chunks done and chunks in all.

    Raises:
        ModelFileError: the text is too short, or the model can't be run.
    """

    def heard(message: dict[str, Any]) -> None:
        if progress is not None:
            progress(message["done"], message["count"])

    run_child(__name__, [str(model), str(text), str(out)], heard)


def check_text_file(path: Path) -> None:
    """Raises `UsageError` unless it is a text that can be read."""
    try:
        if not path.is_file():
            raise UsageError(f"--imatrix {path}: isn't a file; a UTF-8 text is needed")
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise UsageError(
                f"--imatrix {path}: larger than {_MOST_BYTES >> 20} MiB; some hundred kilobytes are enough"
            )
        data.decode("utf-8")
    except OSError as error:
        raise UsageError(f"--imatrix {path}: can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"--imatrix {path}: isn't UTF-8 text (at byte {error.start})") from None


class _Tensor(ctypes.Structure):
    """ggml.h, struct ggml_tensor, which the library's own evaluation callback hands out."""


_Tensor._fields_ = [
    ("type", ctypes.c_int),
    ("buffer", ctypes.c_void_p),
    ("ne", ctypes.c_int64 * 4),
    ("nb", ctypes.c_size_t * 4),
    ("op", ctypes.c_int),
    ("op_params", ctypes.c_int32 * 16),
    ("flags", ctypes.c_int32),
    ("src", ctypes.POINTER(_Tensor) * 10),
    ("view_src", ctypes.c_void_p),
    ("view_offs", ctypes.c_size_t),
    ("data", ctypes.c_void_p),
    ("name", ctypes.c_char * 64),
    ("extra", ctypes.c_void_p),
]


@cache
def _op_name(op: int) -> str:
    function = ggml().ggml_op_name
    function.restype, function.argtypes = ctypes.c_char_p, [ctypes.c_int]
    return bytes(function(op)).decode()


def _array(tensor: _Tensor, dtype: type, kind: int) -> np.ndarray:
    """A tensor's values with its axes from the slowest to the fastest, as numpy counts them."""
    if tensor.type != kind or not tensor.data:
        raise ModelFileError("the model's activations aren't where they can be read; convert on the CPU")
    shape, strides = tuple(tensor.ne)[::-1], tuple(tensor.nb)[::-1]
    size = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) + np.dtype(dtype).itemsize
    memory = (ctypes.c_char * size).from_address(tensor.data)
    return np.ndarray(shape, dtype, memory, strides=strides)


class Collector:
    """llama.cpp's evaluation callback: sums squares of the inputs of each product with a weight matrix."""

    def __init__(self) -> None:
        self._sums: dict[str, np.ndarray] = {}
        self._counts: dict[str, np.ndarray] = {}
        self.error: Exception | None = None

    def __call__(self, address: int, ask: bool, _user_data: Any) -> bool:
        try:
            tensor = ctypes.cast(address, ctypes.POINTER(_Tensor)).contents
            op = _op_name(tensor.op)
            wanted = op in ("MUL_MAT", "MUL_MAT_ID") and tensor.src[0].contents.name.endswith(b".weight")
            if ask:
                return wanted
            if wanted:
                self._add(tensor, experts=op == "MUL_MAT_ID")
            return True
        except Exception as error:  # ctypes would print and swallow it
            self.error = error
            return False

    def _add(self, tensor: _Tensor, experts: bool) -> None:
        weights = tensor.src[0].contents
        name, matrices, columns = weights.name.decode(), weights.ne[2], weights.ne[0]
        if name not in self._sums:
            self._sums[name] = np.zeros((matrices, columns))
            self._counts[name] = np.zeros(matrices, np.int64)
        inputs = _array(tensor.src[1].contents, np.float32, _F32).astype(np.float64)[0]
        if not experts:
            self._sums[name] += (inputs**2).sum((0, 1))
            self._counts[name] += inputs.shape[0] * inputs.shape[1]
            return
        chosen = _array(tensor.src[2].contents, np.int32, _I32)[0, 0]  # (tokens, experts a token)
        inputs = np.broadcast_to(inputs, (*chosen.shape, columns))
        np.add.at(self._sums[name], chosen.ravel(), (inputs**2).reshape(-1, columns))
        np.add.at(self._counts[name], chosen.ravel(), 1)

    def means(self) -> dict[str, np.ndarray]:
        """Mean squares (matrices x columns,) float32; an expert that no token chose weighs all columns alike."""
        result = {}
        for name, sums in self._sums.items():
            counts = self._counts[name][:, None]
            result[name] = np.where(counts > 0, sums / np.maximum(counts, 1), 1.0).astype(np.float32).ravel()
        return result


def _work(report: Report) -> None:
    model, text, out = map(Path, sys.argv[1:])
    (tokens,), vocabulary = encoded(model, [text.read_text("utf-8")])
    bos = leading_bos(vocabulary)
    first = [] if bos is None else [bos]
    size = _CHUNK - len(first)
    chunks = [first + tokens[i : i + size] for i in range(0, len(tokens) - size + 1, size)][:_MOST_CHUNKS]
    if not chunks:
        raise ModelFileError(
            f"{text}: holds {len(tokens)} tokens; an importance matrix needs {size} or more, better 50,000"
        )
    collector = Collector()
    _watch(model, chunks, collector, lambda done: report(done=done, count=len(chunks)))
    with out.open("wb") as file:
        np.savez(file, allow_pickle=False, **collector.means())


def _watch(path: Path, chunks: list[list[int]], collector: Collector, done: Callable[[int], None]) -> None:
    library = llama()
    LOG.forget()
    params = library.llama_model_default_params()
    params.n_gpu_layers, params.use_extra_bufts = 0, False
    model = library.llama_model_load_from_file(os.fsencode(path), params)
    if not model:
        raise ModelFileError(f"{path}: llama.cpp can't load it: {LOG.complaint()}")
    settings = library.llama_context_default_params()
    settings.n_ctx = settings.n_batch = settings.n_ubatch = _CHUNK
    settings.n_threads = settings.n_threads_batch = default_threads()
    callback = library.ggml_backend_sched_eval_callback(collector)
    settings.cb_eval = callback
    context = library.llama_init_from_model(model, settings)
    if not context:
        raise ModelFileError(f"{path}: llama.cpp makes no context for it: {LOG.complaint()}")
    memory = library.llama_get_memory(context)
    for number, chunk in enumerate(chunks, 1):
        library.llama_memory_clear(memory, True)
        tokens = (ctypes.c_int32 * len(chunk))(*chunk)
        status = library.llama_decode(context, library.llama_batch_get_one(tokens, len(chunk)))
        if collector.error is not None:
            raise collector.error
        if status:
            raise ModelFileError(f"{path}: llama.cpp failed on the text: {LOG.complaint()}")
        done(number)
    library.llama_free(context)
    library.llama_model_free(model)


if __name__ == "__main__":
    sys.exit(work_as_child(_work))
