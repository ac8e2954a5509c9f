"""Runs mypy on the four rooms as they are installed: as subpackages of `edgespec`.

In the source tree `runtimes/` lies beside `edgespec/`, which mypy can't map. So it looks at a folder of links that has
the installed layout.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("runtimes", "models", "convert")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "edgespec")
        package.mkdir()
        for entry in (ROOT / "edgespec").iterdir():
            os.symlink(entry, package / entry.name)
        for room in ROOMS:
            os.symlink(ROOT / room, package / room)
        os.symlink(ROOT / "scripts", Path(folder, "scripts"))
        command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "edgespec", "scripts"]
        environment = {**os.environ, "MYPYPATH": folder}
        cache = ["--cache-dir", str(ROOT / ".mypy_cache")]
        return subprocess.run([*command, *cache], cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
