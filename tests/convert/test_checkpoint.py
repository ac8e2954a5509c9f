from __future__ import annotations

import contextlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgespec.convert.checkpoint import chat_template, is_checkpoint, open_checkpoint, stage
from edgespec.models.errors import ModelFileError

SIZES = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "I32": 4}


def safetensors(tensors: dict[str, tuple[str, list[int]]]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, (dtype, shape) in tensors.items():
        size = SIZES[dtype]
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(position)


MATRIX = {"a.weight": ("BF16", [4, 8]), "norm.weight": ("F32", [8])}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The least that a checkpoint has."""
    path = tmp_path / "some model"
    path.mkdir()
    (path / "config.json").write_text(
        json.dumps({"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 64})
    )
    (path / "tokenizer.json").write_text("{}")
    (path / "model.safetensors").write_bytes(safetensors(MATRIX))
    return path


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        open_checkpoint(folder)
    for word in words:
        assert word in str(caught.value)


def test_what_a_checkpoint_says(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    assert is_checkpoint(folder)
    assert not is_checkpoint(folder.parent)
    assert (checkpoint.architecture, checkpoint.lossless) == ("LlamaForCausalLM", "BF16")
    assert (checkpoint.parameters, checkpoint.lossless_bytes, checkpoint.vocabulary) == (40, 80, 8)


@pytest.mark.parametrize(
    ("types", "lossless"),
    [
        (["F16"], "F16"),
        (["BF16", "BF16"], "BF16"),
        (["F32"], "F32"),
        (["F16", "BF16"], "F32"),
        (["F32", "F16"], "F32"),
        (["F8_E4M3", "BF16"], "BF16"),
        (["I32"], "BF16"),
    ],
)
def test_the_lossless_type_holds_every_matrix(folder: Path, types: list[str], lossless: str) -> None:
    tensors = {f"{i}.weight": (kind, [2, 2]) for i, kind in enumerate(types)}
    (folder / "model.safetensors").write_bytes(safetensors(tensors | {"v": ("F32", [3])}))
    assert open_checkpoint(folder).lossless == lossless


def test_shards_are_taken_from_the_index_and_a_missing_one_is_named(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": dict(zip("ab", names, strict=True))})
    )
    (folder / names[0]).write_bytes(safetensors(MATRIX))
    refused(folder, "1 of 2 files", names[1], "download")
    (folder / names[1]).write_bytes(safetensors(MATRIX))
    assert [path.name for path in open_checkpoint(folder).shards] == names


def test_an_index_cannot_lead_out_of_the_folder(folder: Path) -> None:
    index = {"weight_map": {"a": "../other/model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(folder, "outside")


def test_pickles_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refused(folder, "pickles", "pytorch_model.bin", "safetensors")


def test_missing_parts_are_named(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    refused(folder, "no tokenizer")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").unlink()
    refused(folder, "no weights")
    (folder / "config.json").write_text("{}")
    refused(folder, "config.json", "architecture")


@pytest.mark.parametrize(
    "config", ["", "[]", "[" * 5000, "\x00", '{"architectures": "Llama"}', '{"architectures": [3]}']
)
def test_damaged_configurations_are_errors(folder: Path, config: str) -> None:
    (folder / "config.json").write_text(config)
    refused(folder, "config.json")


@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_safetensors_are_errors_or_read_alike(folder: Path, data: st.DataObject) -> None:
    whole = bytearray(safetensors(MATRIX))
    cut = data.draw(st.integers(0, len(whole)))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    (folder / "model.safetensors").write_bytes(whole[:cut])
    with contextlib.suppress(ModelFileError):
        assert open_checkpoint(folder).parameters < 1 << 60


@pytest.mark.parametrize("offsets", [[0, 65], [-1, 64], [9, 8], [0, 1.5], [0], None, "ab"])
def test_extents_are_held_against_the_file(folder: Path, offsets: object) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [16], "data_offsets": offsets}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    refused(folder, "isn't a whole safetensors file")


def test_what_the_converter_sees_holds_no_code(folder: Path, tmp_path: Path) -> None:
    (folder / "modeling_evil.py").write_text("raise SystemExit")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    evil = {"architectures": ["X"], "auto_map": {"AutoConfig": "who/ever--modeling_evil.Config"}, "hidden_size": 8}
    (folder / "config.json").write_text(json.dumps(evil))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"auto_map": {"AutoTokenizer": ["a.b", None]}, "eos_token": "x"})
    )
    stage(open_checkpoint(folder), tmp_path / "staged")
    names = {path.name for path in (tmp_path / "staged").iterdir()}
    assert names == {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}
    assert json.loads((tmp_path / "staged/config.json").read_text()) == {"architectures": ["X"], "hidden_size": 8}
    assert json.loads((tmp_path / "staged/tokenizer_config.json").read_text()) == {"eos_token": "x"}


def test_the_chat_template_is_found_wherever_it_is(folder: Path) -> None:
    assert chat_template(open_checkpoint(folder)) is None
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "in the config"}))
    assert chat_template(open_checkpoint(folder)) == "in the config"
    several = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "usual"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    assert chat_template(open_checkpoint(folder)) == "usual"
    (folder / "chat_template.jinja").write_text("in a file")
    assert chat_template(open_checkpoint(folder)) == "in a file"


@pytest.mark.parametrize("shape", [[10**200, 10**200], [10**9], [4, 8, 1000]])
def test_shapes_are_held_against_their_bytes(folder: Path, shape: list[int]) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 128]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(128))
    refused(folder, "isn't a whole safetensors file")


@pytest.mark.parametrize("key", ["num_hidden_layers", "vocab_size", "hidden_size"])
@pytest.mark.parametrize("value", [10**9, "8", None, [1]])
def test_sizes_that_the_weights_cannot_have_are_refused(folder: Path, key: str, value: object) -> None:
    for config in ({key: value}, {"text_config": {key: value}}):
        (folder / "config.json").write_text(json.dumps({"architectures": ["X"]} | config))
        refused(folder, "config.json", key)


def test_what_is_no_file_is_left_out_or_named(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(folder / "tokenizer_config.json")
    (folder / "special_tokens_map.json").symlink_to("/dev/zero")
    stage(open_checkpoint(folder), tmp_path / "staged")
    assert not (tmp_path / "staged" / "tokenizer_config.json").exists()
    assert not (tmp_path / "staged" / "special_tokens_map.json").exists()
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    refused(folder, "config.json", "regular file")


def test_half_a_surrogate_pair_is_passed_on(folder: Path, tmp_path: Path) -> None:
    (folder / "config.json").write_text('{"architectures": ["X"], "x": "\\ud800"}')
    stage(open_checkpoint(folder), tmp_path / "staged")
    assert "ud800" in (tmp_path / "staged/config.json").read_text()
