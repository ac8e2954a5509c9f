"""Our products of quantized weights with a few rows, put under llama.cpp as a device of ggml's.

The library is built when the package is installed, if there is a compiler. Nothing here computes by itself: once
`kernels()` was called, models that are loaded inside of `in_use(True)` hold their weights in our order, and ggml's
threads run our functions for them.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..llama_library import ggml

TYPES = {"Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14}
"""Kinds of weights that they multiply, by ggml's numbers."""
_CALLS = (  # in the order of `Ggml` in ggml_abi.h
    "ggml_op_name", "ggml_type_name", "ggml_tensor_overhead", "ggml_nbytes", "ggml_init", "ggml_free",
    "ggml_new_tensor_2d", "ggml_new_graph_custom", "ggml_graph_overhead_custom", "ggml_graph_add_node",
    "ggml_graph_node", "ggml_graph_n_nodes", "ggml_backend_dev_by_type", "ggml_backend_dev_backend_reg",
    "ggml_backend_dev_init", "ggml_backend_dev_supports_op", "ggml_backend_dev_supports_buft",
    "ggml_backend_dev_buffer_type", "ggml_backend_reg_get_proc_address", "ggml_backend_graph_compute",
    "ggml_backend_free", "ggml_backend_buffer_init", "ggml_backend_register",
)  # fmt: skip
_VERSION = 3
"""Of what they compute, and how fast."""
_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")


@dataclass(frozen=True, slots=True)
class Kernels:
    """What is in use.

    Attributes:
        path: the instruction set; None: llama.cpp's own code runs.
        reason: why, for people; empty where a path is in use, and where none is wanted.
    """

    path: str | None
    reason: str = ""

    @property
    def identity(self) -> str:
        """Tells builds apart whose results or speeds may differ."""
        return f"{self.path}-{_VERSION}"


@cache
def library() -> ctypes.CDLL | None:
    """The kernels' library; None: it wasn't built."""
    try:
        found = ctypes.CDLL(str(Path(__file__).with_name(f"libedgespec{_SUFFIX}")))
    except OSError:
        return None
    found.edgespec_path.argtypes, found.edgespec_path.restype = [ctypes.c_int], ctypes.c_char_p
    found.edgespec_register.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    found.edgespec_register.restype = ctypes.c_char_p
    found.edgespec_use.argtypes, found.edgespec_use.restype = [ctypes.c_int], None
    return found


def paths() -> list[str]:
    """The instruction sets that this processor and this build have, the fastest first, plain C++ last."""
    ours = library()
    found: list[str] = []
    while ours is not None and (name := ours.edgespec_path(len(found))) is not None:
        found.append(name.decode())
    return found


@cache
def kernels() -> Kernels:
    """Register the kernels with the llama.cpp that is loaded, once; says what came of it."""
    ours = library()
    if ours is None:
        return Kernels(None, "they weren't built when edgespec was installed; that needs a C++ compiler")
    path = paths()[0]
    if path == "plain":
        return Kernels(None, "this processor has none of the instructions that they are written for")
    theirs = ggml()
    missing = [name for name in _CALLS if not hasattr(theirs, name)]
    if missing:
        return Kernels(None, f"this llama.cpp lacks {', '.join(missing)}")
    calls = (ctypes.c_void_p * len(_CALLS))(*(ctypes.cast(getattr(theirs, name), ctypes.c_void_p) for name in _CALLS))
    problem = ours.edgespec_register(calls, path.encode())
    return Kernels(None, f"this llama.cpp isn't one that they fit: {problem.decode()}") if problem else Kernels(path)


@contextlib.contextmanager
def in_use(wanted: bool) -> Iterator[None]:
    """Models and contexts that this thread makes inside of the block use the kernels, or don't."""
    ours = library()
    if ours is None or not wanted:
        yield
        return
    ours.edgespec_use(1)
    try:
        yield
    finally:
        ours.edgespec_use(0)
