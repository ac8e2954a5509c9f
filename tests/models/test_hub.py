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
from edgespec.models.hub import choose, hub_file, is_hub_reference
from edgespec.models.resolve import resolve_model

FILES = {"small-Q4_K_M.gguf": b"GGUF four bits", "small-Q8_0.gguf": b"GGUF eight bits", "README.md": b"# Small"}
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
        if path.startswith("/api/models/owner/small/tree/"):
            entries = [{"type": "file", "path": n, "size": len(b), "oid": "0" * 40} for n, b in FILES.items()]
            self._send(json.dumps(entries).encode(), "application/json", with_body)
        elif path.startswith("/api/models/owner/small"):
            siblings = [{"rfilename": name} for name in FILES]
            body = {"id": "owner/small", "sha": COMMIT, "siblings": siblings, "private": False}
            self._send(json.dumps(body).encode(), "application/json", with_body)
        elif path.startswith("/owner/small/resolve/") and path.rpartition("/")[2] in FILES:
            self._send(FILES[path.rpartition("/")[2]], "application/octet-stream", with_body)
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
    monkeypatch.setattr("huggingface_hub.file_download.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
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


def test_without_a_network_what_is_there_is_used(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    path = hub_file("owner/small")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert hub_file("owner/small") == path
    with pytest.raises(ModelFileError, match="other/model: the hub can't be reached: ") as caught:
        hub_file("other/model")
    assert "\n" not in str(caught.value)


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
