from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.models.errors import ModelFileError, RuntimeFailure, UsageError
from edgespec.runtimes import Runtime, RuntimeOptions, TokenTree, Work
from edgespec.runtimes.llamacpp import LlamaCpp

from .conformance import RuntimeConformance, full_logits


class TestLlamaCpp(RuntimeConformance):
    def load(self, path: Path, **options: Any) -> Runtime:
        return LlamaCpp.load(path, RuntimeOptions(**options))


@pytest.mark.parametrize("cache_type", ["f16", "f32", "bf16"])
@pytest.mark.parametrize("flash_attention", [None, True, False])
def test_cache_types_and_attention_kinds_load_and_run(
    tiny: Path, cache_type: str, flash_attention: bool | None
) -> None:
    runtime = LlamaCpp.load(tiny, RuntimeOptions(ctx=64, cache_type=cache_type, flash_attention=flash_attention))
    (scores,) = runtime.forward([Work(runtime.open(), TokenTree.chain([1, 2]))])
    assert scores.logits.shape == (2, 1024)
    runtime.close()


def test_a_quantized_cache_gives_nearly_the_same_logits(smollm: Path) -> None:
    tokens, rows = list(range(1000, 1040)), []
    for cache_type in ("f16", "q8_0"):
        runtime = LlamaCpp.load(smollm, RuntimeOptions(ctx=256, cache_type=cache_type))
        rows.append(full_logits(runtime, tokens))
        runtime.close()
    assert 0 < np.abs(rows[0] - rows[1]).mean() < 0.05 * np.ptp(rows[0])


@pytest.mark.parametrize("mmap", [True, False])
def test_weights_load_with_and_without_mmap(tiny: Path, mmap: bool) -> None:
    runtime = LlamaCpp.load(tiny, RuntimeOptions(ctx=64, mmap=mmap))
    runtime.close()


@pytest.mark.parametrize(
    ("option", "value"),
    [("ctx", 0), ("sequences", 0), ("branches", 0), ("batch", 0), ("draft_tokens", 0), ("threads", 0),
     ("cache_type", "q3"), ("ctx", 1 << 32), ("threads", 10**30), ("split_mode", "diagonal"), ("sequences", 1000),
     ("ctx", "64"), ("ctx", 64.0), ("ctx", None), ("ctx", True), ("threads", 2.5), ("gpu_layers", "all"),
     ("gpu_layers", -2),
     ("flash_attention", 3.5), ("flash_attention", "on"), ("mmap", 1), ("repack", None), ("main_gpu", -1),
     ("batch", 1 << 30), ("draft_tokens", 1 << 30), ("cache_type", ["f16"]), ("split_mode", None)],
)  # fmt: skip
def test_options_out_of_range_are_named(tiny: Path, option: str, value: Any) -> None:
    with pytest.raises(UsageError, match=option.replace("_", ".")):
        LlamaCpp.load(tiny, RuntimeOptions(**{option: value}))


def test_a_cache_type_that_does_not_fit_the_heads_is_an_error(tiny: Path) -> None:
    with pytest.raises(UsageError, match=r"cache type 'q8_0'.*heads of 16"):
        LlamaCpp.load(tiny, RuntimeOptions(ctx=64, cache_type="q8_0"))


def test_what_llama_cpp_says_of_options_that_do_not_go_together_is_passed_on(smollm: Path) -> None:
    with pytest.raises(RuntimeFailure, match=r"quantized V cache requires flash_attn"):
        LlamaCpp.load(smollm, RuntimeOptions(ctx=64, cache_type="q8_0", flash_attention=False))


def test_a_context_beyond_the_memory_is_refused_before_it_is_tried(tiny: Path) -> None:
    with pytest.raises(RuntimeFailure, match=r"1000000000 tokens needs a KV cache of .* GiB .*--ctx"):
        LlamaCpp.load(tiny, RuntimeOptions(ctx=10**9))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"nothing\.gguf: no such file"):
        LlamaCpp.load(tmp_path / "nothing.gguf", RuntimeOptions())


def test_use_after_close_is_an_error_not_a_crash(tiny: Path) -> None:
    runtime = LlamaCpp.load(tiny, RuntimeOptions(ctx=64))
    sequence = runtime.open()
    runtime.close()
    with pytest.raises(RuntimeFailure, match="closed"):
        runtime.forward([Work(sequence, TokenTree.chain([1]))])
    runtime.truncate(sequence, 0)
    runtime.release(sequence)
    runtime.close()
    for use in (
        lambda: runtime.open(), lambda: runtime.can_rewind, lambda: runtime.prefill(sequence, [1]),
        lambda: runtime.vocabulary.encode("x", special=True, add_bos=True), lambda: runtime.vocabulary.piece(5),
        lambda: runtime.vocabulary.end_tokens, lambda: runtime.commit(sequence, []),
    ):  # fmt: skip
        with pytest.raises(RuntimeFailure, match="closed"):
            use()


def test_memory_is_freed_when_the_last_reference_goes(tiny: Path) -> None:
    runtime = LlamaCpp.load(tiny, RuntimeOptions(ctx=64))
    gone = weakref.ref(runtime)
    del runtime
    gc.collect()
    assert gone() is None


def test_progress_is_reported(tiny: Path) -> None:
    shares: list[float] = []
    LlamaCpp.load(tiny, RuntimeOptions(ctx=64), shares.append).close()
    assert shares[-1] == 1.0


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_in_the_progress_report_ends_the_loading(tiny: Path, error: type[BaseException]) -> None:
    def report(_share: float) -> None:
        raise error

    with pytest.raises(error):
        LlamaCpp.load(tiny, RuntimeOptions(ctx=64), report)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_loading_is_not_lost_in_a_callback(smollm: Path, number: int) -> None:
    """Python runs its handlers at the next line of Python, which is one that llama.cpp calls."""

    class Arrived(Exception):  # noqa: N818
        pass

    def handler(_number: int, _frame: Any) -> None:
        raise Arrived

    before = signal.signal(number, handler)
    try:
        for delay in (0.001, 0.02, 0.05):
            timer = threading.Timer(delay, lambda: os.kill(os.getpid(), number))
            with pytest.raises(Arrived):  # noqa: PT012
                timer.start()
                LlamaCpp.load(smollm, RuntimeOptions(ctx=64, mmap=False)).close()
                timer.join()
                time.sleep(0.1)
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


def test_more_branches_than_draft_tokens_are_fine(tiny: Path) -> None:
    runtime = LlamaCpp.load(tiny, RuntimeOptions(ctx=64, draft_tokens=2, branches=8))
    runtime.forward([Work(runtime.open(), TokenTree.chain([1, 2, 3]))])
    runtime.close()


@pytest.mark.parametrize("splitter", ["smollm", "gpt-4o", "viking", "falcon"])
@pytest.mark.parametrize("letter", ["x", " ", ".", "1"])
def test_long_words_do_not_exhaust_the_stack(tiny: Path, tmp_path: Path, splitter: str, letter: str) -> None:
    """llama.cpp splits by std::regex for some models, which recurses for each character."""
    path = tmp_path / "model.gguf"
    data = tiny.read_bytes()
    old, new = (len(name).to_bytes(8, "little") + name.encode() for name in ("smollm", splitter))
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))
    runtime = LlamaCpp.load(path, RuntimeOptions(ctx=64))
    tokens = runtime.vocabulary.encode(letter * 200_000, special=True, add_bos=False)
    assert b"".join(map(runtime.vocabulary.piece, tokens)) == letter.encode() * 200_000
    runtime.close()


def test_closing_waits_for_a_text_that_another_thread_tokenizes(tiny: Path) -> None:
    runtime = LlamaCpp.load(tiny, RuntimeOptions(ctx=64))
    began, results = threading.Event(), []

    def tokenize() -> None:
        began.set()
        try:
            while True:
                results.append(len(runtime.vocabulary.encode("hello " * 20_000, special=True, add_bos=True)))
        except RuntimeFailure as error:
            results.append(str(error))

    thread = threading.Thread(target=tokenize)
    thread.start()
    began.wait()
    time.sleep(0.05)
    runtime.close()
    thread.join(30)
    assert results[-1] == "this model was closed"


def test_what_the_progress_report_returns_does_not_matter(tiny: Path) -> None:
    LlamaCpp.load(tiny, RuntimeOptions(ctx=64), lambda _share: False).close()  # type: ignore[arg-type, return-value]


def test_a_token_outside_the_vocabulary_fails_and_leaves_the_sequence_usable(tiny: Path) -> None:
    runtime = LlamaCpp.load(tiny, RuntimeOptions(ctx=64))
    sequence = runtime.open()
    runtime.prefill(sequence, [1, 2, 3])
    with pytest.raises(RuntimeFailure):
        runtime.forward([Work(sequence, TokenTree.chain([5, 5000]))])
    assert sequence.length == 3
    runtime.forward([Work(sequence, TokenTree.chain([5, 6]))])
    runtime.close()


def test_identity_names_what_step_times_depend_on(tiny: Path, tiny_draft: Path) -> None:
    identities = set()
    for path, options in [
        (tiny, RuntimeOptions(ctx=64, threads=1)), (tiny, RuntimeOptions(ctx=64, threads=2)),
        (tiny_draft, RuntimeOptions(ctx=64, threads=1)), (tiny, RuntimeOptions(ctx=64, threads=1, cache_type="f32")),
    ]:  # fmt: skip
        runtime = LlamaCpp.load(path, options)
        identities.add(runtime.identity)
        runtime.close()
    assert len(identities) == 4
