"""The llama.cpp library that llama-cpp-python ships: loaded when needed, its log caught, its errors put into words."""

from __future__ import annotations

import collections
import ctypes
import re
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from edgespec.models.errors import RuntimeFailure
from edgespec.runtimes.signals import deferred_signals

_NEEDED = (
    "llama_memory_seq_rm", "llama_memory_seq_cp", "llama_memory_seq_pos_max", "llama_get_logits",
    "llama_get_embeddings", "llama_set_embeddings", "llama_model_is_recurrent", "llama_model_is_hybrid",
)  # fmt: skip
_LEVEL_DEBUG, _LEVEL_WARN, _LEVEL_ERROR, _LEVEL_CONTINUED = 1, 3, 4, 5  # ggml_log_level


class _Log:
    """Keeps llama.cpp's last messages instead of letting it write to standard error."""

    def __init__(self) -> None:
        self.lines: collections.deque[tuple[int, str]] = collections.deque(maxlen=1000)

    def __call__(self, level: int, text: bytes | None, _user_data: Any) -> None:
        if level == _LEVEL_DEBUG:
            return
        message = (text or b"").decode("utf-8", "replace")
        if level == _LEVEL_CONTINUED and self.lines:
            last_level, last = self.lines[-1]
            self.lines[-1] = (last_level, last + message)
        else:
            self.lines.append((level, message))

    def forget(self) -> None:
        """Begin anew, before a call whose complaint may be wanted."""
        self.lines.clear()

    def complaint(self) -> str:
        """The first error since `forget`, or the first warning where there was none.

        Later ones only repeat that it failed. The function's name at a line's beginning tells nothing.
        """
        for wanted in (_LEVEL_ERROR, _LEVEL_WARN):
            for level, line in self.lines:
                text = re.sub(r"^\w+: (error loading model: )?", "", " ".join(line.split()))
                if level == wanted and text:
                    return text
        return "llama.cpp gave no reason"


LOG = _Log()
_KEPT: list[Any] = []
"""Callbacks handed to llama.cpp, which keeps only their address: the objects must live as long as the process."""


@cache
def llama() -> ModuleType:
    """llama-cpp-python's low-level module, with the log redirected to `LOG`.

    Raises:
        RuntimeFailure: not installed, or without the calls that token trees need.
    """
    try:
        with deferred_signals():  # it turns every exception while its library is loaded into one of its own
            library = import_module("llama_cpp.llama_cpp")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:  # the ways in which a broken build fails
        raise RuntimeFailure(
            f"llama-cpp-python can't be loaded ({error}); install it with: pip install llama-cpp-python"
        ) from error
    missing = [name for name in _NEEDED if not hasattr(library, name)]
    if missing or not hasattr(library.llama_context_params, "kv_unified"):
        raise RuntimeFailure(
            f"this llama-cpp-python lacks {', '.join(missing) or 'kv_unified'}; 0.3.36 or newer is needed"
        )
    callback = library.llama_log_callback(LOG)
    _KEPT.append(callback)
    library.llama_log_set(callback, ctypes.c_void_p(0))
    library.llama_backend_init()
    return library


@cache
def ggml() -> ctypes.CDLL:
    """The ggml under llama.cpp, whose device calls llama-cpp-python doesn't wrap."""
    from llama_cpp._ggml import libggml

    # looked up through libllama: llama-cpp-python itself loads libggml.so, libllama needs libggml.so.0, and where a
    # wheel made two files of the link, these are two libraries with two lists of devices
    library = ctypes.CDLL(llama()._lib._name)
    if not hasattr(library, "ggml_backend_dev_count"):  # Windows looks at the library alone, but loads none twice
        library = libggml
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "ggml_backend_dev_count": (ctypes.c_size_t, []),
        "ggml_backend_dev_get": (ctypes.c_void_p, [ctypes.c_size_t]),
        "ggml_backend_dev_name": (ctypes.c_char_p, [ctypes.c_void_p]),
        "ggml_backend_dev_description": (ctypes.c_char_p, [ctypes.c_void_p]),
        "ggml_backend_dev_type": (ctypes.c_int, [ctypes.c_void_p]),
        "ggml_backend_dev_memory": (
            None,
            [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)],
        ),
    }
    for name, (restype, argtypes) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = restype, argtypes
    return library


def version() -> str:
    """Versions of llama-cpp-python and of the llama.cpp inside."""
    import llama_cpp

    inside = llama().llama_version() if hasattr(llama(), "llama_version") else b"?"
    return f"llama-cpp-python {llama_cpp.__version__} (llama.cpp {inside.decode()})"


def cpu_features() -> list[str]:
    """Instruction sets that the CPU backend was built for, as ggml names them."""
    text = llama().llama_print_system_info().decode("utf-8", "replace")
    features = []
    for item in text.replace("|", " ").replace(":", " ").replace(" = ", "=").split():
        name, _, value = item.partition("=")
        if value and value not in ("0",):
            features.append(name if value == "1" else item)
    return features
