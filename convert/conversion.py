"""From sources to packs: convert, quantize, check, and only then put in place."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from edgespec.models.child import run_child
from edgespec.models.digests import sha256_of
from edgespec.models.errors import ModelFileError
from edgespec.models.gguf_check import checked_header
from edgespec.models.manifest import MANIFEST_NAME, open_pack
from edgespec.models.vocabularies import HeaderVocabulary, differing_tokens
from edgespec.runtimes.llama_library import version as llama_version

from . import converter
from .agreement import LENGTH
from .check import Reference, check_model, check_template, checkpoint_reference, gguf_reference
from .checkpoint import chat_template, stage
from .imatrix import compute_imatrix
from .pack import write_pack
from .quantize import QUANT_TYPES, is_low_bit, main_type, quantize, replaced_types
from .source import Source
from .work import finished, work_folder

_RESERVE = 64 << 20
_DEFAULT = "Q4_K_M"
"""For checkpoints: four bits are what most people run."""
_FULL = 4 << 20
_PARTS = ("target", "draft")


class Reporter(Protocol):
    """Who hears how far it is."""

    def step(self, title: str, total: int) -> None:
        """A step begins, of so many parts (0: not known)."""

    def advance(self, done: int, what: str = "") -> None:
        """So many parts are done."""

    def note(self, text: str) -> None:
        """A thing that people should know."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is wanted.

    Attributes:
        out: the pack; with several types, each pack's name is followed by its type.
        quants: types, of `QUANT_TYPES`; none: GGUFs as they are, checkpoints as Q4_K_M.
        imatrix: a text for an importance matrix.
    """

    target: Source
    out: Path
    draft: Source | None = None
    quants: tuple[str, ...] = ()
    imatrix: Path | None = None


@dataclass(slots=True)
class Converted:
    """A pack that was made, or was there already, made of the same."""

    path: Path
    quant: str | None
    made: dict[str, Any] = field(default_factory=dict)
    was_there: bool = False


def convert(order: Order, by: str, reporter: Reporter) -> list[Converted]:
    """Make the packs. An interrupted run goes on where it was when it is started again.

    Args:
        by: who makes them, for the manifest.

    Raises:
        ModelFileError: a source can't be converted, a result isn't what its source is, or the disk is full.
        VocabularyMismatch: the draft isn't for this target.
    """
    fingerprint = _fingerprint(order)
    packs = _planned(order)
    done = {path: made for path, _ in packs if (made := _made(path, fingerprint)) is not None}
    if (order.out.absolute().parent / MANIFEST_NAME).is_file():
        raise ModelFileError(f"{order.out}: lies inside another pack; name another place with -o")
    wanted = [(path, quant) for path, quant in packs if path not in done]
    with work_folder(order.out, fingerprint) as work:
        if wanted:
            _require_space(order, [quant for _, quant in wanted], work)
            with _full_disk_named(order.out, work):
                done |= _make(order, wanted, work, {"by": by, "fingerprint": fingerprint}, reporter)
    return [Converted(path, quant, done[path], (path, quant) not in wanted) for path, quant in packs]


def _make(
    order: Order, wanted: list[tuple[Path, str | None]], work: Path, common: dict[str, Any], reporter: Reporter
) -> dict[Path, dict[str, Any]]:
    """Make packs; of each, how it was made."""
    models = [_ModelConversion(order.target, order, work / "target", reporter)]
    if order.draft is not None:
        models.append(_ModelConversion(order.draft, order, work / "draft", reporter))
        _require_same_vocabulary(models)
    done = {}
    for path, quant in wanted:
        results = [model.result(quant, is_draft=i > 0) for i, model in enumerate(models)]
        made = done[path] = common | {
            "from": order.target.name,
            "quant": quant or main_type(checked_header(results[0].path)),
            "llama_cpp": llama_version(),
            "checked": {part: r.figures for part, r in zip(_PARTS, results, strict=False) if r.figures},
            "notes": [note for result in results for note in result.notes],
        }
        draft = _renamed(results[1].path, results[0].path) if len(results) > 1 else None
        write_pack(path, results[0].path, draft, made=made, scratch=work)
    return done


@contextlib.contextmanager
def _full_disk_named(out: Path, work: Path) -> Iterator[None]:
    """A disk that fills up in spite of the check fails in as many ways as there are libraries."""
    try:
        yield
    except (ModelFileError, OSError):
        if shutil.disk_usage(work).free < _FULL:
            raise ModelFileError(
                f"{out}: the disk is full; free some space or name a place on another disk with -o"
            ) from None
        raise


def _fingerprint(order: Order) -> str:
    parts = [order.target.state, order.draft.state if order.draft else "", ",".join(order.quants)]
    parts += [sha256_of(order.imatrix) if order.imatrix else "", converter.VERSION, llama_version()]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:32]


def _planned(order: Order) -> list[tuple[Path, str | None]]:
    quants: Sequence[str | None] = order.quants or ([None] if order.target.gguf else [_DEFAULT])
    if len(quants) == 1:
        return [(order.out, quants[0])]
    return [(order.out.with_name(f"{order.out.name}-{str(quant).lower()}"), quant) for quant in quants]


def _made(path: Path, fingerprint: str) -> dict[str, Any] | None:
    """How a pack that is there was made, if of the same sources in the same way; None: nothing is there.

    Raises:
        ModelFileError: something else is there.
    """
    if not path.exists() and not path.is_symlink():
        return None
    if (path / MANIFEST_NAME).is_file():
        made = open_pack(path).made
        if made.get("fingerprint") == fingerprint:
            return made
    raise ModelFileError(f"{path}: exists already, and not from this conversion; remove it or choose another name (-o)")


def _require_space(order: Order, quants: list[str | None], work: Path) -> None:
    """Refuse before hours of work what the disk can't hold; what an interrupted run left there counts as free."""
    needed = _RESERVE
    for source in filter(None, (order.target, order.draft)):
        if source.checkpoint is not None:
            parameters, vocabulary = source.checkpoint.parameters, source.checkpoint.vocabulary
            needed += source.checkpoint.lossless_bytes
        else:
            assert source.gguf is not None
            header = checked_header(source.gguf)
            parameters = sum(tensor.weights for tensor in header.tensors)
            vocabulary = len(header.metadata["tokenizer.ggml.tokens"])
        needed += 4 * LENGTH * vocabulary  # the reference's logits
        needed += sum(int(parameters * QUANT_TYPES[quant][1] / 8) for quant in quants if quant is not None)
    there = sum(path.stat().st_size for path in work.rglob("*") if path.is_file() and not path.is_symlink())
    free = shutil.disk_usage(work).free + there
    if needed > free:
        raise ModelFileError(
            f"{order.out}: the conversion needs about {needed / 1e9:.1f} GB on this disk, and {free / 1e9:.1f} GB are "
            "free; free some or name a place on another disk with -o"
        )


def _require_same_vocabulary(models: list[_ModelConversion]) -> None:
    headers = [checked_header(model.lossless()) for model in models]
    differing_tokens(*map(HeaderVocabulary, headers))


def _renamed(path: Path, other: Path) -> Path:
    """A draft's file under a name that isn't the target's."""
    if path.name != other.name:
        return path
    link = path.with_name(f"draft-{path.name}")
    if not link.exists():
        link.symlink_to(path.absolute())
    return link


@dataclass(slots=True)
class _Result:
    path: Path
    figures: dict[str, Any] | None
    notes: list[str]


class _ModelConversion:
    """One model on its way: each thing is made when it is first asked for, and kept in the work folder."""

    def __init__(self, source: Source, order: Order, work: Path, reporter: Reporter) -> None:
        self._source, self._order, self._work, self._reporter = source, order, work, reporter
        self._notes: list[str] = []
        self._reference: Reference | None = None
        work.mkdir(exist_ok=True)

    def lossless(self) -> Path:
        """A GGUF with the source's weights as they are."""
        checkpoint = self._source.checkpoint
        if checkpoint is None:
            assert self._source.gguf is not None
            return self._source.gguf
        return finished(self._work / "lossless.gguf", self._convert)

    def _convert(self, out: Path) -> None:
        checkpoint = self._source.checkpoint
        assert checkpoint is not None
        folder = converter.converter_folder()
        total = checkpoint.lossless_bytes
        self._reporter.step(f"{self._source.name}: converting {checkpoint.architecture}", total)
        arguments = [str(folder), str(self._staged()), str(out), checkpoint.lossless, self._source.name]
        with _watched(out, self._reporter):
            run_child("edgespec.convert.checkpoint_to_gguf", arguments)
        check_template(checked_header(out), chat_template(checkpoint))

    def _staged(self) -> Path:
        assert self._source.checkpoint is not None
        folder = self._work / "staged" / self._source.name
        if not folder.exists():
            part = folder.with_name(f"{folder.name}.staging")
            shutil.rmtree(part, ignore_errors=True)
            stage(self._source.checkpoint, part)
            part.rename(folder)
        return folder

    def reference(self) -> Reference:
        if self._reference is None:
            lossless, checkpoint = self.lossless(), self._source.checkpoint
            self._reporter.step(f"{self._source.name}: asking the source", 0)
            if checkpoint is None:
                self._reference = gguf_reference(lossless, self._work)
            else:
                self._reference, note = checkpoint_reference(checkpoint, self._staged(), lossless, self._work)
                self._note(note)
        return self._reference

    def result(self, quant: str | None, is_draft: bool) -> _Result:
        """The model in a type, checked. A draft of few bits stays as it is: there is nothing to gain."""
        lossless, checkpoint = self.lossless(), self._source.checkpoint
        if is_draft and checkpoint is None and is_low_bit(checked_header(lossless)):
            quant = None
        if quant is None and checkpoint is not None:
            quant = _DEFAULT
        if quant is None or (checkpoint is not None and quant == checkpoint.lossless):
            path = self._named(lossless, quant or main_type(checked_header(lossless)))
        else:
            path = self._quantized(lossless, quant)
        self._note(replaced_types(checked_header(path), quant) if quant else None)
        figures = None
        if quant is not None:
            check = functools.partial(self._check, path, quant)
            figures = json.loads(finished(path.with_suffix(".checked"), check).read_text("utf-8"))
        notes, self._notes = self._notes, []
        return _Result(path, figures, notes)

    def _check(self, path: Path, quant: str, out: Path) -> None:
        reference = self.reference()
        self._reporter.step(f"{path.name}: checking", 0)
        out.write_text(json.dumps(check_model(path, quant, reference)), "utf-8")

    def _named(self, path: Path, quant: str) -> Path:
        link = self._work / f"{self._source.name}{'' if self._source.gguf else '-' + quant.lower()}.gguf"
        if not link.exists():
            link.symlink_to(path.resolve())
        return link

    def _quantized(self, lossless: Path, quant: str) -> Path:
        header = checked_header(lossless)
        if self._source.gguf is not None and is_low_bit(header):
            self._note(
                f"{self._source.name} is {main_type(header)} already: quantizing it again loses more than "
                "quantizing the original model would"
            )
        imatrix = None
        if self._order.imatrix is not None:
            imatrix = finished(self._work / "imatrix.npz", lambda out: self._imatrix(lossless, out))

        def make(out: Path) -> None:
            title = f"{self._source.name}: quantizing to {quant}"
            self._reporter.step(title, len(header.tensors))
            quantize(lossless, out, quant, imatrix, lambda number, _count, name: self._reporter.advance(number, name))

        return finished(self._work / f"{self._source.name}-{quant.lower()}.gguf", make)

    def _imatrix(self, lossless: Path, out: Path) -> None:
        assert self._order.imatrix is not None
        self._reporter.step(f"{self._source.name}: reading {self._order.imatrix.name}", 0)
        compute_imatrix(lossless, self._order.imatrix, out, lambda done, _count: self._reporter.advance(done))

    def _note(self, text: str | None) -> None:
        if text is not None and text not in self._notes:
            self._notes.append(text)
            self._reporter.note(text)


@contextlib.contextmanager
def _watched(out: Path, reporter: Reporter) -> Iterator[None]:
    """Report how large a file that another process writes has become."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            with contextlib.suppress(OSError):
                reporter.advance(out.stat().st_size)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
