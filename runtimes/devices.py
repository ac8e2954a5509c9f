"""Devices and their memory, as ggml's own device calls list them."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

from .llama_library import ggml

KINDS = ("cpu", "gpu", "integrated gpu", "accelerator", "meta")  # enum ggml_backend_dev_type

_OURS = "edgespec"


@dataclass(frozen=True, slots=True)
class Device:
    """A device that ggml can compute on; memory in bytes (0 where the backend doesn't tell)."""

    name: str
    description: str
    kind: str
    memory_free: int
    memory_total: int


def list_devices() -> list[Device]:
    """All but the one that our own kernels pose as: it is the CPU once more."""
    library = ggml()
    devices = []
    for index in range(library.ggml_backend_dev_count()):
        handle = library.ggml_backend_dev_get(index)
        name = library.ggml_backend_dev_name(handle).decode("utf-8", "replace")
        if name == _OURS:
            continue
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        library.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
        number = library.ggml_backend_dev_type(handle)
        kind = KINDS[number] if number < len(KINDS) else f"kind {number}"
        available = _available() if kind == "cpu" else None
        devices.append(
            Device(
                name=name,
                description=library.ggml_backend_dev_description(handle).decode("utf-8", "replace"),
                kind=kind,
                memory_free=free.value if available is None else available,
                memory_total=total.value,
            )
        )
    return devices


def _available() -> int | None:
    """Bytes that could be had without swapping; ggml reports the CPU's memory as if all of it were free."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):  # not Linux
        pass
    return None


def default_threads() -> int:
    """One thread for each physical core that this process may use."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    cores = set()
    for cpu in allowed:
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as file:
                cores.add(file.read().strip())
        except OSError:  # not Linux, or a container that hides it
            return max(1, len(allowed) // 2 if len(allowed) > 4 else len(allowed))
    return len(cores)
