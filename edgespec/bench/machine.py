"""What a measurement was made on."""

from __future__ import annotations

import datetime
import platform
from typing import Any

from edgespec import __version__
from edgespec.runtimes.devices import default_threads, list_devices
from edgespec.runtimes.llama_library import cpu_features, version


def machine_facts() -> dict[str, Any]:
    """Devices, instruction sets and versions, and a summary of one line."""
    devices = [device.description for device in list_devices()]
    vectors = [name for name in cpu_features() if name.startswith(("AVX", "NEON", "SVE", "MATMUL", "DOTPROD"))]
    date, threads = str(datetime.date.today()), default_threads()
    system = f"{platform.system()} {platform.machine()}"
    return {
        "date": date,
        "devices": devices,
        "vectors": vectors,
        "threads": threads,
        "system": system,
        "edgespec": __version__,
        "llama_cpp": version(),
        "summary": f"{date}, {', '.join(devices)} ({' '.join(vectors)}), {threads} threads, {system}, {version()}",
    }
