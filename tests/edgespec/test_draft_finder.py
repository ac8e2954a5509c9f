from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.convert.pack import write_pack
from edgespec.draft_finder import draft_advice, draft_candidates
from edgespec.model_facts import file_facts, pack_facts
from edgespec.models.errors import ModelFileError
from edgespec.models.manifest import open_pack
from edgespec.models.shelves import ShelvedModel


def shelved(path: Path, name: str = "") -> ShelvedModel:
    return ShelvedModel(name or path.stem, path, path.stat().st_size if path.is_file() else 1, "edgespec")


def test_the_smallest_model_with_the_same_tokens_comes_first(
    tiny: Path, tiny_draft: Path, tiny_other: Path, tmp_path: Path
) -> None:
    # the fixtures are of one size; a file may be followed by anything, and counts as that much larger
    target = tmp_path / "target.gguf"
    target.write_bytes(tiny.read_bytes() + bytes(4 << 20))
    larger = tmp_path / "larger.gguf"
    larger.write_bytes(tiny_draft.read_bytes() + bytes(1 << 20))
    half = tmp_path / "half.gguf"
    half.write_bytes(tiny_draft.read_bytes() + bytes(4 << 20))
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    write_pack(tmp_path / "pack", tiny_draft)
    paths = [half, tmp_path / "broken.gguf", larger, tiny_other, target, tiny_draft, tmp_path / "pack"]
    found = draft_candidates(target, map(shelved, paths))
    assert [c.model.name for c in found if c.refusal is None] == ["pack", "tiny-draft", "larger"]
    refusals = {c.model.name: c.refusal for c in found if c.refusal}
    assert set(refusals) == {"half", "broken", "tiny-other"}  # the target itself isn't among them
    assert "% of the target's size" in str(refusals["half"])
    assert "can't be read" in str(refusals["broken"])
    assert "1006 of 1024 tokens differ" in str(refusals["tiny-other"])


def test_a_copy_of_the_target_is_no_draft(tiny: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(tiny.read_bytes())
    assert [c.refusal for c in draft_candidates(tiny, [shelved(copy)])] == ["it is the same model"]


def test_facts_are_those_of_the_file(tiny: Path, tmp_path: Path) -> None:
    import gguf

    reader = gguf.GGUFReader(tiny)
    facts = file_facts(tiny)
    assert facts["parameters"] == sum(int(t.n_elements) for t in reader.tensors)
    assert facts["bytes"] == tiny.stat().st_size
    assert (facts["architecture"], facts["layers"], facts["vocabulary"]) == ("llama", 3, 1024)
    assert sum(facts["types"].values()) == pytest.approx(1, abs=1e-3)
    assert set(facts["types"]) == {t.tensor_type.name for t in reader.tensors}
    with pytest.raises(ModelFileError):
        file_facts(tmp_path)


def test_facts_of_a_pack_name_its_draft_and_how_it_was_made(tiny: Path, tiny_draft: Path, tmp_path: Path) -> None:
    write_pack(tmp_path / "pack", tiny, tiny_draft, made={"by": "a test"})
    facts = pack_facts(open_pack(tmp_path / "pack"))
    assert facts["draft"]["layers"] == 1
    assert facts["made"] == {"by": "a test"}


def test_advice_names_the_smallest_that_fits_or_says_why_none_does(
    smollm: Path, tiny: Path, tiny_draft: Path, tiny_other: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target.gguf"
    target.write_bytes(tiny.read_bytes() + bytes(4 << 20))
    assert draft_advice(target, []) == "give one with --draft FILE; no other model was found on this machine"
    fitting = draft_advice(target, [shelved(tiny_other), shelved(tiny_draft)])
    assert fitting == f"--draft tiny-draft would do ({tiny_draft.stat().st_size / 1e6:.0f} MB)"
    refused = draft_advice(smollm, [shelved(tiny_other)])
    assert "of 1 other models" in refused
    assert "tokens differ" in refused
