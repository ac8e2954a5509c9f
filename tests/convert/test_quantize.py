from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from edgespec.convert.imatrix import check_text_file, compute_imatrix
from edgespec.convert.quantize import QUANT_TYPES, is_low_bit, main_type, quantize, replaced_types
from edgespec.convert.texts import PASSAGE
from edgespec.models.errors import ModelFileError, UsageError
from edgespec.models.gguf import read_header

MATRIX = "blk.1.ffn_up.weight"


def values(path: Path, name: str) -> np.ndarray:
    tensor = next(t for t in gguf.GGUFReader(path).tensors if t.name == name)
    return gguf.dequantize(tensor.data, tensor.tensor_type)


@pytest.mark.parametrize("quant", sorted(QUANT_TYPES))
def test_every_type_is_written_and_near_the_original(tiny: Path, tmp_path: Path, quant: str) -> None:
    seen: list[tuple[int, int, str]] = []
    quantize(tiny, tmp_path / "out.gguf", quant, progress=lambda *step: seen.append(step))
    header = read_header(tmp_path / "out.gguf")
    assert {t.name for t in header.tensors} == {t.name for t in read_header(tiny).tensors}
    assert seen[-1][0] == seen[-1][1] == len(header.tensors)
    assert {name for *_, name in seen} == {t.name for t in header.tensors}
    original, written = values(tiny, MATRIX), values(tmp_path / "out.gguf", MATRIX)
    bits = {"F32": 24, "F16": 11, "BF16": 8, "Q8_0": 7, "Q6_K": 6, "Q5_K_M": 5, "Q4_K_M": 4, "Q4_0": 3.5, "Q4_1": 3.5}[
        quant
    ]
    assert np.abs(written - original).max() <= np.abs(original).max() * 2.0 ** -(bits - 0.5)
    assert replaced_types(header, quant) is None or "_K" in quant


def test_q8_0_is_what_the_gguf_package_makes(tiny: Path, tmp_path: Path) -> None:
    quantize(tiny, tmp_path / "out.gguf", "Q8_0")
    kind = gguf.GGMLQuantizationType.Q8_0
    expected = gguf.dequantize(gguf.quantize(values(tiny, MATRIX).astype(np.float32), kind), kind)
    np.testing.assert_array_equal(values(tmp_path / "out.gguf", MATRIX), expected)


def test_widths_that_k_types_cannot_hold_are_told(tiny: Path, tmp_path: Path) -> None:
    quantize(tiny, tmp_path / "out.gguf", "Q4_K_M")
    header = read_header(tmp_path / "out.gguf")
    told = replaced_types(header, "Q4_K_M")
    assert told is not None
    assert "rows of 64 and 128" in told
    assert "Q5_0" in told
    assert replaced_types(header, "Q4_0") is None
    assert main_type(header) != "Q4_K"
    assert is_low_bit(header)
    assert not is_low_bit(read_header(tiny))


def test_what_cannot_be_written_is_an_error(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="can't write it as Q8_0"):
        quantize(tiny, tmp_path / "nowhere" / "out.gguf", "Q8_0")
    (tmp_path / "bad.gguf").write_bytes(tiny.read_bytes()[:5000])
    with pytest.raises(ModelFileError):
        quantize(tmp_path / "bad.gguf", tmp_path / "out.gguf", "Q8_0")


@pytest.fixture(scope="module")
def imatrix(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imatrix")
    (folder / "text").write_text(PASSAGE)
    compute_imatrix(tiny, folder / "text", folder / "out.npz")
    return folder / "out.npz"


def test_the_importance_matrix_holds_the_mean_squares_of_the_inputs(tiny: Path, imatrix: Path) -> None:
    """The first layer's q, k and v see the normed embeddings of the tokens: worked out here with numpy."""
    from edgespec.convert.agreement import encoded

    (tokens,), _ = encoded(tiny, [PASSAGE])
    embedding = values(tiny, "token_embd.weight").astype(np.float64)[tokens[: len(tokens) // 512 * 512]]
    normed = embedding / np.sqrt((embedding**2).mean(1, keepdims=True) + 1e-5)
    found = np.load(imatrix)
    matrices = {t.name for t in read_header(tiny).tensors if len(t.shape) > 1}
    assert set(found.files) == matrices - {"token_embd.weight"}
    for name in ("attn_q", "attn_k", "attn_v"):
        np.testing.assert_allclose(found[f"blk.0.{name}.weight"], (normed**2).mean(0), rtol=2e-3)


def test_it_steers_the_error_to_where_it_matters_less(tiny: Path, tmp_path: Path, imatrix: Path) -> None:
    name = "blk.2.ffn_down.weight"
    weights = np.load(imatrix)[name]
    errors = []
    for matrix in (None, imatrix):
        quantize(tiny, tmp_path / "out.gguf", "Q4_0", matrix)
        errors.append(((values(tmp_path / "out.gguf", name) - values(tiny, name)) ** 2 * weights).sum())
    assert errors[1] < 0.95 * errors[0]


def test_texts_that_cannot_be_used_are_named(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("a few words")
    with pytest.raises(ModelFileError, match=r"holds . tokens"):
        compute_imatrix(tiny, tmp_path / "short", tmp_path / "out.npz")
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    for name, words in (("latin", "UTF-8"), ("missing", "isn't a file"), (".", "isn't a file")):
        with pytest.raises(UsageError, match=words):
            check_text_file(tmp_path / name)
