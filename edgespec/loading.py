"""Loads a model: finds its files, checks them, opens target and draft, and measures what their steps cost."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edgespec.models.checks import check_choice, check_kind, shown, whole
from edgespec.models.errors import ModelFileError, UsageError
from edgespec.models.gguf import GGUFHeader
from edgespec.models.gguf_check import checked_header
from edgespec.models.manifest import Pack, open_pack
from edgespec.models.resolve import resolve_model
from edgespec.runtimes import RUNTIMES, Runtime, RuntimeOptions, runtime_class
from edgespec.runtimes.trial import ensure_tried

from .controller import Controller
from .costs import SIZES, CostCurve, measured_curve
from .draft_length import ExpectedSpeed, FixedLength, LengthRule, RecentAcceptance
from .drafters.base import Drafter
from .drafters.draft_model import MAX_LENGTH
from .model import Model
from .stability import stable_size
from .strategies import STRATEGIES, Parts, make_drafters
from .templates import ChatTemplate

DEFAULT_CONTEXT = 4096
MAX_BRANCHES = 16
_DRAFT_SIZES = (1, 2, 16)
Notify = Callable[[str], None]


def load(
    model: str | Path | None = None,
    *,
    draft: str | Path | None = None,
    strategy: str = "auto",
    runtime: str = "auto",
    ctx: int | None = None,
    draft_length: str | int = "auto",
    draft_branches: int = 1,
    bit_exact: bool = False,
    notify: Notify | None = None,
    on_load: Callable[[float], None] | None = None,
    **options: Any,
) -> Model:
    """Load a pack or a GGUF.

    Args:
        model: a pack folder or a GGUF file, or the name of one (see `edgespec.models.resolve`); None: the small default
            model.
        draft: a GGUF, or the name of one, that drafts for it, instead of the pack's own.
        strategy: who drafts; see `edgespec.strategies.STRATEGIES`.
        runtime: what runs it; see `edgespec.runtimes.RUNTIMES`.
        ctx: tokens of prompt and answer together; None: 4096, or what the model was trained for where that is less.
        draft_length: "auto" (expected tokens per second), "practice" (by recent acceptance) or a number.
        draft_branches: paths that a draft model's tree follows at once; 1: a chain.
        bit_exact: draft only as much as one pass computes exactly like single passes, to the last bit, so that not even
            a near-tie can turn (see `edgespec.stability`). Options that aren't given are then those with which that is
            the most (see `Runtime.stable_options`).
        notify: called with one-line notices.
        on_load: called with the loaded share of the target, 0 to 1.
        **options: further fields of `RuntimeOptions`.

    Raises:
        UsageError: an option out of range.
        ModelFileError: a file is missing, damaged, or not one that can be run.
        VocabularyMismatch: the draft isn't for this target.
    """
    say = _notifier(notify)
    check_choice("strategy", strategy, STRATEGIES)
    check_choice("runtime", runtime, ("auto", *RUNTIMES))
    draft_branches = whole("draft_branches", draft_branches, 1, MAX_BRANCHES)
    check_kind("bit_exact", bit_exact, bool)
    rule_of = _length_rule(draft_length)
    if on_load is not None and not callable(on_load):
        raise UsageError(f"on_load is {shown(on_load)}; a function of one number is needed")
    pack = _pack(model, draft)
    header = vetted(pack.target)
    backend = runtime_class(next(iter(RUNTIMES)) if runtime == "auto" else runtime)
    for name, value in backend.stable_options(header, options).items() if bit_exact else ():
        options.setdefault(name, value)
    options.setdefault("branches", MAX_LENGTH if draft_branches > 1 else 1)
    settings = _runtime_options(ctx, header, options, say)
    with contextlib.ExitStack() as opened:  # closed in turn where something fails
        template = _template(pack, header)
        if template is not None:
            opened.callback(template.close)
        target = backend.load(pack.target, settings, on_load)
        opened.callback(target.close)
        _mention(target, say)
        curves = _Curves(say)
        load_draft = functools.partial(curves.load, backend, pack.draft, settings)
        weighs = isinstance(draft_length, str) and draft_length == "auto"
        chooser = _Chooser(Parts(pack, target, load_draft, draft_branches), curves, rule_of, weighs, bit_exact)
        opened.callback(chooser.close)
        result = Model(target, chooser, strategy, template)
        opened.pop_all()
    return result


class _Chooser:
    """Implements `Chooser`. Drafters and controllers are made when a strategy first needs them, and kept."""

    def __init__(
        self,
        parts: Parts,
        curves: _Curves,
        rule_of: Callable[[CostCurve | None], LengthRule],
        weighs: bool,
        exact: bool,
    ) -> None:
        self._parts, self._curves, self._rule_of, self._weighs, self._exact = parts, curves, rule_of, weighs, exact
        self._drafters: dict[str, Drafter] = {}
        self._controllers: dict[str, Controller] = {}

    def controller(self, strategy: str) -> Controller:
        check_choice("strategy", strategy, STRATEGIES)
        if strategy not in self._controllers:
            self._controllers[strategy] = self._made(strategy)
        return self._controllers[strategy]

    def _made(self, strategy: str) -> Controller:
        drafters = make_drafters(strategy, self._parts, self._drafters)
        target, curves = self._parts.target, self._curves
        curve = curves.of(target, SIZES) if self._weighs and drafters else None
        most = stable_size(target) - 1 if self._exact and drafters else None
        if most == 0:
            curves.say("passes over several tokens round differently here, so nothing is drafted under bit_exact")
        controller = Controller(drafters, self._rule_of(curve), curve, most)
        for name, seconds in curves.drafting.items():
            controller.expect_drafting(name, seconds)
        return controller

    def close(self) -> None:
        for drafter in self._drafters.values():
            drafter.close()


def _notifier(notify: Notify | None) -> Notify:
    """Notices are worth less than the answer: one that can't be delivered is dropped."""
    if notify is None:
        return lambda _line: None
    if not callable(notify):
        raise UsageError(f"notify is {shown(notify)}; a function of one text is needed")

    def say(line: str) -> None:
        with contextlib.suppress(OSError):
            notify(line)

    return say


class _Curves:
    """Measures step times, and says so once."""

    def __init__(self, say: Notify) -> None:
        self.say, self._said = say, False
        self.drafting: dict[str, float] = {}

    def of(self, runtime: Runtime, sizes: tuple[int, ...]) -> CostCurve:
        return measured_curve(runtime, sizes, self._announce)

    def load(self, backend: type[Runtime], path: Path | None, options: RuntimeOptions) -> tuple[Runtime, CostCurve]:
        assert path is not None
        header = vetted(path)
        trained = header.hyperparameter("context_length") or options.ctx
        # one cache for all conversations: it follows whichever is drafted for
        settings = dataclasses.replace(options, ctx=min(options.ctx, max(1, int(trained))), sequences=1)
        draft = backend.load(path, settings)
        _mention(draft, self.say)
        curve = self.of(draft, _DRAFT_SIZES)
        self.drafting["draft"] = curve(1)
        return draft, curve

    def _announce(self) -> None:
        if not self._said:
            self.say("measuring what steps cost on this machine (once for each model)")
            self._said = True


def _mention(runtime: Runtime, say: Notify) -> None:
    if runtime.notice:
        say(runtime.notice)


def vetted(path: Path) -> GGUFHeader:
    """The header of a model file that passed the checks and the trial in a child process."""
    header = checked_header(path)
    ensure_tried(header)
    return header


def _pack(model: str | Path | None, draft: str | Path | None) -> Pack:
    if model is None:
        # HTTP and archives: 4 MiB that whoever names a model doesn't need
        from edgespec.models.registry import default_model_path

        model = default_model_path()
    pack = open_pack(resolve_model(model))
    if draft is None:
        return pack
    draft_path = resolve_model(draft, "draft")
    if draft_path.is_dir():
        raise ModelFileError(f"{draft_path}: a draft is a GGUF file, not a folder")
    return dataclasses.replace(pack, draft=draft_path)


def _runtime_options(ctx: int | None, header: GGUFHeader, options: dict[str, Any], say: Notify) -> RuntimeOptions:
    unknown = options.keys() - set(RuntimeOptions.__slots__)
    if unknown:
        raise UsageError(f"unknown option {sorted(unknown)[0]!r}")
    trained = int(header.hyperparameter("context_length") or DEFAULT_CONTEXT)
    ctx = max(1, min(DEFAULT_CONTEXT, trained)) if ctx is None else whole("ctx", ctx, 1, (1 << 31) - 1)
    if ctx > trained:
        say(f"{header.path.name} was trained for a context of {trained}; with {ctx} its answers may get worse")
    return RuntimeOptions(ctx=ctx, **options)


def _length_rule(draft_length: str | int) -> Callable[[CostCurve | None], LengthRule]:
    if isinstance(draft_length, str):
        if draft_length == "auto":
            # without drafters there is no curve, and nothing to choose a length for
            return lambda curve: ExpectedSpeed(curve) if curve else FixedLength(0)
        if draft_length == "practice":
            return lambda _curve: RecentAcceptance()
    most = RuntimeOptions().draft_tokens
    try:
        as_text = isinstance(draft_length, str) and draft_length.isascii() and draft_length.isdecimal()
        length = whole("", int(draft_length[:9]) if as_text else draft_length, 1, most)  # type: ignore[index]
    except UsageError:
        raise UsageError(
            f"draft length {shown(draft_length)} must be auto, practice, or a number from 1 to {most}"
        ) from None
    return lambda _curve: FixedLength(length)


def _template(pack: Pack, header: GGUFHeader) -> ChatTemplate | None:
    source = pack.template or header.metadata.get("tokenizer.chat_template")
    if not isinstance(source, str) or not source.strip():
        return None
    tokens: Sequence[str] = header.metadata["tokenizer.ggml.tokens"]
    ids = [header.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")]
    texts = [tokens[i] if isinstance(i, int) and 0 <= i < len(tokens) else "" for i in ids]
    return ChatTemplate(source, str(header.path), *texts)
