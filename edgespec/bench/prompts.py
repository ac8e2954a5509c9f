"""The bench's prompts: eight categories, six each, of our own writing."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources

CATEGORIES = ("chat", "translation", "summarisation", "qa", "math", "rag", "code", "edit")


@cache
def prompts(category: str) -> tuple[str, ...]:
    """The prompts of a category, texts included."""
    folder = resources.files(__package__)
    templates = tomllib.loads(folder.joinpath("prompts.toml").read_text("utf-8"))[category]
    texts = {path.name.removesuffix(".txt"): path.read_text("utf-8") for path in folder.joinpath("texts").iterdir()}
    return tuple(_filled(template, texts) for template in templates)


def _filled(template: str, texts: dict[str, str]) -> str:
    for name, text in texts.items():
        template = template.replace(f"{{{name}}}", text)
    return template
