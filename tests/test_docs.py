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


def test_the_reference_of_commands_is_what_they_say() -> None:
    from scripts.write_commands import PAGE, reference

    assert PAGE.read_text("utf-8") == reference(), "run: python -m scripts.write_commands"


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_options_and_pages_that_are_named_exist(page: str) -> None:
    from scripts.write_commands import reference

    text, known = (ROOT / page).read_text("utf-8"), reference()
    others = {"--break-system-packages", "--no-binary", "--force-reinstall", "--upgrade", "--no-cache-dir"}  # pip's
    for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - others:
        assert option in known or option in _OF_SCRIPTS, f"{page} names {option}"
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


_OF_SCRIPTS = {"--help", "--debug", "--version"} | {
    option
    for path in (ROOT / "scripts").glob("*.py")
    for option in re.findall(r'"(--[a-z][a-z-]+)[/"]', path.read_text("utf-8"))
}
