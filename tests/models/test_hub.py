"""The hub, against a server of our own that speaks as much of its protocol as a download needs."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgespec.models.errors import ModelFileError
from edgespec.models.hub import choose, hub_checkpoint, hub_file, is_hub_reference
from edgespec.models.resolve import resolve_model

FILES = {"small-Q4_K_M.gguf": b"GGUF four bits", "small-Q8_0.gguf": b"GGUF eight bits", "README.md": b"# Small"}
CHECKPOINT = {
    "config.json": b"{}", "model.safetensors": b"weights", "tokenizer.json": b"{}", "chat_template.jinja": b"hello",
    "modeling_code.py": b"raise SystemExit", "pytorch_model.bin": b"pickle",
}  # fmt: skip
REPOSITORIES = {"owner/small": FILES, "owner/checkpoint": CHECKPOINT}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.BaseHTTPRequestHandler):
    requests: list[str]

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        self.requests.append(f"{self.command} {path}")
        name = "/".join(path.removeprefix("/api/models").split("/")[1:3])
        files, file = REPOSITORIES.get(name, {}), path.rpartition("/")[2]
        if files and path.startswith(f"/api/models/{name}/tree/"):
            entries = [{"type": "file", "path": n, "size": len(b), "oid": "0" * 40} for n, b in files.items()]
            self._send(json.dumps(entries).encode(), "application/json", with_body)
        elif files and path.startswith("/api/models/"):
            siblings = [{"rfilename": name} for name in files]
            body = {"id": name, "sha": COMMIT, "siblings": siblings, "private": False}
            self._send(json.dumps(body).encode(), "application/json", with_body)
        elif path.startswith(f"/{name}/resolve/") and file in files:
            self._send(files[file], "application/octet-stream", with_body)
        else:
            self.send_response(401)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def _send(self, body: bytes, kind: str, with_body: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    """A hub with one repository, and an empty cache."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    for module in ("file_download", "_snapshot_download"):
        monkeypatch.setattr(f"huggingface_hub.{module}.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HOME", str(tmp_path))
    handler = type("OneHub", (Hub,), {"requests": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler
    server.shutdown()
    server.server_close()


def test_the_usual_file_is_downloaded_once(hub: type[Hub]) -> None:
    path = resolve_model("owner/small")
    assert path.read_bytes() == FILES["small-Q4_K_M.gguf"]
    downloads = [r for r in hub.requests if r.startswith("GET") and "/resolve/" in r]
    assert hub_file("owner/small") == path
    assert [r for r in hub.requests if r.startswith("GET") and "/resolve/" in r] == downloads


@pytest.mark.parametrize("wanted", ["Q8_0", "q8_0", "small-Q8_0", "small-Q8_0.gguf"])
def test_a_file_is_named_by_name_or_quantization(hub: type[Hub], wanted: str) -> None:
    assert hub_file(f"owner/small:{wanted}").read_bytes() == FILES["small-Q8_0.gguf"]


def test_without_a_network_what_is_there_is_used(
    hub: type[Hub], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = hub_file("owner/small")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert hub_file("owner/small") == path
    with pytest.raises(ModelFileError, match="other/model: the hub can't be reached: ") as caught:
        hub_file("other/model")
    assert "\n" not in str(caught.value)
    assert not caplog.records  # no retries


def test_an_unknown_repository_is_said_to_be_one(hub: type[Hub]) -> None:
    with pytest.raises(ModelFileError, match="owner/none: the hub has no such repository"):
        resolve_model("owner/none")


def test_what_a_reference_looks_like() -> None:
    assert all(map(is_hub_reference, ["a/b", "a.b/c-d_e", "a/b:Q4_K_M", "a/b:sub/file.gguf"]))
    assert not any(map(is_hub_reference, ["a", "a/b/c", "a/", "/b", "a/b:", "a b/c", "é/b", "a/b\n"]))


@pytest.mark.parametrize(
    ("names", "wanted", "chosen"),
    [
        (["only.gguf"], None, "only.gguf"),
        (["m-Q8_0.gguf", "m-Q4_0.gguf", "m-Q4_K_M.gguf"], None, "m-Q4_K_M.gguf"),
        (["m.Q8_0.gguf", "m.Q4_0.gguf"], None, "m.Q4_0.gguf"),
        (["m-Q4_K_M.gguf", "mmproj-m-Q4_K_M.gguf", "m-Q8_0-00001-of-00002.gguf"], None, "m-Q4_K_M.gguf"),
        (["a/m-IQ3_XXS.gguf", "a/m-Q4_0.gguf"], "iq3_xxs", "a/m-IQ3_XXS.gguf"),
        (["a/m-IQ3_XXS.gguf", "a/m-Q4_0.gguf"], "m-Q4_0", "a/m-Q4_0.gguf"),
    ],
)  # fmt: skip
def test_the_file_that_is_meant(names: list[str], wanted: str | None, chosen: str) -> None:
    assert choose(names, wanted, "o/r") == chosen


@pytest.mark.parametrize(
    ("names", "wanted", "said"),
    [
        (["README.md", "model.safetensors"], None, "no GGUF"),
        (["m-F16.gguf", "m-BF16.gguf"], None, "several files could be meant; .*: m-BF16.gguf, m-F16.gguf"),
        (["m-Q4_0.gguf"], "Q8_0", "no file is called or quantized as Q8_0; .*: m-Q4_0.gguf"),
        (["a-Q4_0.gguf", "b-Q4_0.gguf"], "Q4_0", "several"),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_listed(names: list[str], wanted: str | None, said: str) -> None:
    with pytest.raises(ModelFileError, match=said):
        choose(names, wanted, "o/r")


def test_a_checkpoint_comes_without_code_and_pickles(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = hub_checkpoint("owner/checkpoint")
    assert folder is not None
    names = {path.name for path in folder.iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"}
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # without a network, what is there
    assert hub_checkpoint("owner/checkpoint") == folder
    with pytest.raises(ModelFileError, match="can't be reached"):
        hub_checkpoint("owner/other")


def test_a_repository_of_ggufs_is_no_checkpoint(hub: type[Hub]) -> None:
    assert hub_checkpoint("owner/small") is None
    assert hub_checkpoint("owner/checkpoint:file") is None
