"""`edgespec show`: what a model is, and what could draft for it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import click

from .convert import agreement_line
from .streams import emit, one_line
from .tables import file_size, table


@click.command("show")
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def command(model: str, as_json: bool) -> None:
    """Show what MODEL is, and which models on this machine could draft for it."""
    from edgespec.draft_finder import draft_candidates
    from edgespec.model_facts import pack_facts
    from edgespec.models.manifest import open_pack
    from edgespec.models.resolve import resolve_model
    from edgespec.models.shelves import shelved_models

    pack = open_pack(resolve_model(model))
    facts = pack_facts(pack)
    candidates = draft_candidates(pack.target, shelved_models())
    if as_json:
        drafts = [{"name": c.model.name, "bytes": c.model.size, "refusal": c.refusal} for c in candidates]
        emit(json.dumps(facts | {"drafts": drafts}, ensure_ascii=False))
        return
    for part in ("target", "draft"):
        if part in facts:
            emit(_file(part, facts[part]))
    if facts.get("made"):
        emit(_made(facts["made"]))
    if "draft" not in facts and candidates:
        emit("\nOther models on this machine, and whether they could draft for it (--draft NAME):")
        emit(table(("name", "size", ""), [(c.model.name, file_size(c.model.size), _verdict(c)) for c in candidates]))


def _made(made: dict[str, Any]) -> str:
    """How a pack was made, as far as people want to know; a stranger's pack may say anything."""
    lines = [f"{key:<14}{made[key]}" for key in ("by", "from", "quant", "imatrix") if isinstance(made.get(key), str)]
    checked = made.get("checked")
    for part, figures in checked.items() if isinstance(checked, dict) else ():
        with contextlib.suppress(LookupError, TypeError, ValueError):
            lines.append(f"{'checked':<14}{part}: {agreement_line(figures)}")
    notes = made.get("notes")
    lines += [f"{'note':<14}{note}" for note in (notes if isinstance(notes, list) else ()) if isinstance(note, str)]
    return "\n".join(map(one_line, lines))


def _verdict(candidate: Any) -> str:
    return "yes" if candidate.refusal is None else f"no: {candidate.refusal}"


def _file(part: str, facts: dict[str, Any]) -> str:
    template = "with" if facts["chat_template"] else "without"
    types = ", ".join(f"{name} {share:.0%}" for name, share in facts["types"].items() if share >= 0.005)
    lines = {
        part: facts["file"],
        "name": facts["name"] or Path(facts["file"]).stem,
        "size": f"{file_size(facts['bytes'])}, {facts['parameters'] / 1e9:.3g} billion parameters",
        "architecture": f"{facts['architecture']}, {facts['layers']} layers of width {facts['width']}",
        "weights": f"{types} (of the bytes)",
        "context": f"trained for {facts['context_length']} tokens",
        "vocabulary": f"{facts['vocabulary']} tokens, {template} a chat template",
    }
    return "\n".join(f"{name:<14}{value}" for name, value in lines.items())
