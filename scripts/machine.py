"""One line that says what a measurement was made on."""

from __future__ import annotations

import datetime
import platform

from edgespec.runtimes.devices import default_threads, list_devices
from edgespec.runtimes.llama_library import cpu_features, version


def describe_machine() -> str:
    devices = ", ".join(f"{device.description}" for device in list_devices())
    vectors = [name for name in cpu_features() if name.startswith(("AVX", "NEON", "SVE", "MATMUL", "DOTPROD"))]
    return (
        f"{datetime.date.today()}, {devices} ({' '.join(vectors)}), {default_threads()} threads, "
        f"{platform.system()} {platform.machine()}, {version()}"
    )
