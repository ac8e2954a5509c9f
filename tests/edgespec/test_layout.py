"""The arrows of the design, and what importing costs."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "edgespec": {"edgespec", "runtimes", "models"},
    "runtimes": {"runtimes", "models"},
    "convert": {"convert", "runtimes", "models"},  # a conversion is checked by running its result
    "models": {"models"},
}


def room_of(module: str) -> str | None:
    parts = module.split(".")
    if parts[0] != "edgespec":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in ALLOWED else "edgespec"


@pytest.mark.parametrize("room", ALLOWED)
def test_imports_point_one_way(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        allowed = ALLOWED[room] | ({"convert"} if "cli" in path.parts else set())  # commands see everything
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                assert room_of(name) in allowed | {None}, f"{path} imports {name}"


@pytest.mark.parametrize("path", sorted(p for room in ALLOWED for p in (ROOT / room).rglob("*.py")), ids=str)
def test_files_stay_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


def test_importing_edgespec_is_quick_and_loads_nothing_heavy() -> None:
    code = "import sys, edgespec; print([m for m in ('numpy', 'llama_cpp', 'torch', 'rich') if m in sys.modules])"
    started = time.perf_counter()
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
    # the bound is 0.5 s; here only what would be a whole other order, so that a busy machine doesn't fail the test
    assert time.perf_counter() - started < 5
