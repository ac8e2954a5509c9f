"""`edgespec info`: versions, devices, memory and CPU features."""

from __future__ import annotations

import dataclasses
import json
import platform
from typing import Any

import click

from edgespec import __version__

from .streams import emit


@click.command("info")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(as_json: bool) -> None:
    """Show versions, devices, memory and CPU features."""
    facts = _facts()
    if as_json:
        emit(json.dumps(facts))
        return
    emit(f"edgespec    {facts['edgespec']}, Python {facts['python']}, {facts['system']}")
    emit(f"llamacpp    {facts['runtimes']['llamacpp']}")
    kernels = facts["kernels"]
    emit(f"kernels     {kernels['path'] or 'not in use: ' + kernels['reason']}")
    emit(f"CPU         {', '.join(facts['cpu_features'])}; {facts['threads']} threads by default")
    for device in facts["devices"]:
        free, total = (device[key] / 2**30 for key in ("memory_free", "memory_total"))
        emit(f"{device['name']:<11} {device['description']} ({device['kind']}), {free:.1f} of {total:.1f} GiB free")
    emit(f"cache       {facts['cache']}")


def _facts() -> dict[str, Any]:
    from edgespec.models.cache import cache_folder
    from edgespec.models.errors import RuntimeFailure
    from edgespec.runtimes.devices import default_threads, list_devices
    from edgespec.runtimes.kernels import kernels
    from edgespec.runtimes.llama_library import cpu_features, version

    facts: dict[str, Any] = {
        "edgespec": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": default_threads(),
        "cache": str(cache_folder()),
    }
    try:
        facts["runtimes"] = {"llamacpp": version()}
        facts["devices"] = [dataclasses.asdict(device) for device in list_devices()]
        facts["cpu_features"] = cpu_features()
        facts["kernels"] = dataclasses.asdict(kernels())
    except RuntimeFailure as error:
        facts |= {"runtimes": {"llamacpp": f"not usable: {error}"}, "devices": [], "cpu_features": []}
        facts["kernels"] = {"path": None, "reason": "llama.cpp isn't usable"}
    return facts
