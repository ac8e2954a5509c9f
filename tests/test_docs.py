"""The documentation's Python examples, run as they stand."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def examples(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["docs/library.md", "README.md"])
def test_the_examples_of_a_page_run_one_after_the_other(
    page: str, tiny: Path, tiny_draft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(tiny, tmp_path / "model.gguf")
    shutil.copy(tiny_draft, tmp_path / "small.gguf")
    monkeypatch.chdir(tmp_path)
    found, names = examples(page), {"__name__": "example"}
    assert found
    for number, example in enumerate(found, 1):
        exec(compile(example, f"{page}, example {number}", "exec"), names)
