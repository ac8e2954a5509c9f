import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.models.errors import ModelFileError, UsageError
from edgespec.models.json_file import read_json


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "isn't valid JSON"), (b"", "isn't valid JSON"), (b"\xff\xfe", "not UTF-8"), (b"[" * 100_000, "JSON"),
        (b" " * ((1 << 20) + 1), "larger than 1 MiB"), (b"1" * 5000, "JSON"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [ModelFileError, UsageError])
def test_what_is_no_small_json_is_refused(
    tmp_path: Path, content: bytes, message: str, kind: type[ModelFileError | UsageError]
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(kind, match=message) as caught:
        read_json(path, 1 << 20, "write it again", kind)
    assert str(caught.value).startswith(str(path))
    assert str(caught.value).endswith("write it again")


def test_folders_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ModelFileError, match="isn't a regular file"):
            read_json(path, 100, "x")


def test_a_missing_file_is_the_callers_to_explain(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none", 100, "x")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_valid_json_comes_back(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path = tmp_path_factory.getbasetemp() / "value.json"
    path.write_text(json.dumps(value), "utf-8")
    assert read_json(path, 1 << 20, "x") == value
