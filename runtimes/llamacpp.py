"""The llama.cpp runtime, through llama-cpp-python's low-level interface. Only its build differs for CUDA and Metal."""

from __future__ import annotations

import dataclasses
import os
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgespec.models.errors import ContextFull, ModelFileError, RuntimeFailure, UsageError
from edgespec.models.gguf import TENSOR_TYPES, GGUFHeader
from edgespec.models.gguf_check import checked_header

from .base import SPLIT_MODES, RuntimeOptions, Scores, Work
from .devices import default_threads, list_devices
from .kernels import TYPES, Kernels, in_use, kernels
from .kernels.trial import misfit
from .llama_batch import Batch
from .llama_cells import CellPlan, LlamaSequence
from .llama_library import LOG, llama, version
from .llama_vocabulary import LlamaVocabulary
from .memory import give_back_memory
from .offload import check_cache, layers_that_fit
from .signals import deferred_signals
from .tree import TokenTree

_NO_SLOT, _ABORTED = 1, 2  # llama_decode's positive results
_REPACKED = {"Q4_0", "Q4_K", "Q2_K", "Q5_K", "Q6_K", "Q8_0", "IQ4_NL", "MXFP4"}
"""Types that llama.cpp rearranges for one CPU or another (ggml-cpu/repack.cpp)."""
_TYPE_NUMBERS = {kind.name.lower(): number for number, kind in TENSOR_TYPES.items()}


class _Cells:
    """`CellTable` on a llama.cpp context."""

    def __init__(self, context: Any) -> None:
        self._library, self._memory = llama(), llama().llama_get_memory(context)

    def remove(self, seq_id: int, start: int, end: int) -> None:
        if not self._library.llama_memory_seq_rm(self._memory, seq_id, start, end) and start > 0:
            raise RuntimeFailure("this model's state can't be rewound, so only plain decoding can run on it")

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        self._library.llama_memory_seq_cp(self._memory, source, target, start, end)


class LlamaCpp:
    """Implements `Runtime`. One model and one context; not for use by two threads at once."""

    name = "llamacpp"

    def __init__(
        self, path: Path, header: GGUFHeader, model: Any, context: Any, options: RuntimeOptions, used: Kernels
    ) -> None:
        self._llama, self._model, self._context = llama(), model, context
        self.path, self.options = path, options
        self.kernels = used.identity if used.path else None
        self.notice = ""
        if used.reason and kernels().path:  # a reason of this model's own; that there are none at all, `info` says
            self.notice = f"{path.name} runs on llama.cpp's own code, not on edgespec's kernels: {used.reason}"
        self._digest = header.digest
        self._finalizer = weakref.finalize(self, _free, model, context)
        # at the end of the process the system frees it, also under a thread that still tokenizes
        self._finalizer.atexit = False  # type: ignore[misc]
        open_ = self._finalizer  # not `self`: the vocabulary must not keep the model alive
        self.vocabulary = LlamaVocabulary(self._llama.llama_model_get_vocab(model), header, lambda: open_.alive)
        self.width: int = self._llama.llama_model_n_embd(model)
        self._plan = CellPlan(_Cells(context), options.sequences, options.sequences * (options.branches - 1))
        self._batch = Batch(max(options.batch, options.draft_tokens + 1), options.branches)
        self._hidden = False

    @classmethod
    def stable_options(cls, header: GGUFHeader, given: Mapping[str, Any]) -> dict[str, Any]:
        """Our kernels need none. With other caches llama.cpp's attention, and with rearranged weights its products,
        treat few tokens differently."""
        on_gpu = given.get("gpu_layers") != 0 and any(device.kind != "cpu" for device in list_devices())
        if given.get("repack", True) and not on_gpu and cls.kernels_for(header).path:
            return {}
        return {"cache_type": "bf16", "repack": False}

    @classmethod
    def kernels_for(cls, header: GGUFHeader) -> Kernels:
        """What a model that lies on the CPU runs on."""
        found = kernels()
        reason = misfit(header, found.identity) if found.path else ""
        return Kernels(None, reason) if reason else found

    @classmethod
    def load(
        cls,
        path: Path,
        options: RuntimeOptions,
        progress: Callable[[float], None] | None = None,
    ) -> LlamaCpp:
        """Load a GGUF.

        Args:
            progress: called with the loaded share, 0 to 1.

        Raises:
            UsageError: an option out of range.
            ModelFileError: llama.cpp refused the file.
        """
        library, header = llama(), checked_header(path)
        _check_counts(options)
        check_cache(header, options, list_devices())
        layers = options.gpu_layers
        if layers is None:
            layers = layers_that_fit(header, options, list_devices())
        used = cls.kernels_for(header) if options.repack and layers == 0 else Kernels(None)
        ours = used.path is not None
        params = _model_params(options, header, layers, ours)
        with in_use(ours), deferred_signals() as signals:
            report = _Progress(progress, signals)
            params.progress_callback = library.llama_progress_callback(report)
            LOG.forget()
            model = library.llama_model_load_from_file(os.fsencode(path), params)
            if model and not report.stopped:
                LOG.forget()
                context = library.llama_init_from_model(model, _context_params(options, ours))
                if context:
                    give_back_memory()
                    return cls(path, header, model, context, options, used)
            if model:
                library.llama_model_free(model)
            if report.error is not None:
                raise report.error
        if not model:
            raise ModelFileError(f"{path}: llama.cpp can't load it: {LOG.complaint()}")
        raise RuntimeFailure(
            f"{path}: llama.cpp makes no context of {options.ctx} tokens (--ctx) with a cache of "
            f"{options.cache_type} (--cache-type): {LOG.complaint()}"
        )

    @property
    def identity(self) -> str:
        # the context's length is left out: what is in use counts, and that is corrected while running
        options = dataclasses.replace(self.options, ctx=1, threads=self.options.threads or default_threads())
        devices = ",".join(device.description for device in list_devices())
        return f"{self.name}|{version()}|{self.kernels}|{self._digest}|{devices}|{options}"

    @property
    def context_length(self) -> int:
        return self.options.ctx

    @property
    def can_rewind(self) -> bool:
        model = self._model
        self._require_open()
        return not (self._llama.llama_model_is_recurrent(model) or self._llama.llama_model_is_hybrid(model))

    def open(self) -> LlamaSequence:
        self._require_open()
        return self._plan.open()

    def release(self, sequence: LlamaSequence) -> None:
        if self._finalizer.alive:
            self._plan.release(sequence)

    def prefill(self, sequence: LlamaSequence, tokens: list[int], stop: Callable[[], bool] | None = None) -> int:
        """Append and commit tokens in chunks of `options.batch`, without logits.

        Returns:
            How many tokens were appended: all, or fewer where `stop` returned True between two chunks.

        Raises:
            ContextFull: they don't fit; nothing was appended.
        """
        self._check_room(sequence, len(tokens))
        done = 0
        while done < len(tokens) and not (stop is not None and stop()):
            chunk = tokens[done : done + self.options.batch]
            tree = TokenTree.chain(chunk)
            self._run([Work(sequence, tree, rows=())])
            self._plan.commit(sequence, list(range(len(chunk))))
            done += len(chunk)
        return done

    def forward(self, work: list[Work]) -> list[Scores]:
        """Compute the new nodes of each tree in one pass.

        Returns:
            For each work item float32 logits (rows, vocabulary) and, where asked for, hidden states (rows, width):
            views of llama.cpp's memory, good until the next pass.

        Raises:
            ContextFull: the trees don't fit, or have too many leaves.
            RuntimeFailure: llama.cpp failed. Trees of this pass are forgotten, committed tokens stay.
        """
        for sequence, tree, _, _ in work:
            self._check_room(sequence, len(tree))
            if len(tree) > self.options.draft_tokens + 1:
                raise ContextFull(
                    f"a tree of {len(tree)} nodes; RuntimeOptions.draft_tokens allows {self.options.draft_tokens + 1}"
                )
        rows = self._run(work)
        return self._scores(work, rows)

    def commit(self, sequence: LlamaSequence, path: list[int]) -> None:
        self._require_open()
        self._plan.commit(sequence, path)

    def truncate(self, sequence: LlamaSequence, length: int) -> None:
        if self._finalizer.alive:  # generators that are closed after their model still tidy up
            self._plan.truncate(sequence, length)

    def close(self) -> None:
        with self.vocabulary.lock:
            self._finalizer()

    def _require_open(self) -> None:
        if not self._finalizer.alive:
            raise RuntimeFailure("this model was closed")

    def _check_room(self, sequence: LlamaSequence, count: int) -> None:
        self._require_open()
        if sequence.length + count > self.options.ctx:
            raise ContextFull(
                f"{sequence.length + count} tokens don't fit into the context of {self.options.ctx}; raise --ctx"
            )

    def _run(self, work: list[Work]) -> list[list[int]]:
        """Decode the new nodes of all trees; returns for each item where its wanted rows lie in the pass's output."""
        self._require_open()
        batch, wants_hidden = self._batch, any(item.hidden for item in work)
        batch.clear()
        rows: list[list[int]] = []
        try:
            for sequence, tree, wanted, _ in work:
                start, depths = len(sequence.owners), tree.depths()
                chosen = set(range(len(tree)) if wanted is None else wanted)
                rows.append([])
                for node, ids in enumerate(self._plan.place(sequence, tree), start):
                    if node in chosen:
                        rows[-1].append(batch.outputs)
                    # with hidden states on, llama.cpp gives a row for every token whether asked or not
                    batch.add(tree.tokens[node], sequence.length + depths[node], ids, wants_hidden or node in chosen)
            self._set_hidden(wants_hidden)
            self._decode()
        except BaseException:
            for sequence, *_ in work:
                self._plan.truncate(sequence, sequence.length)
            raise
        return rows

    def _set_hidden(self, wanted: bool) -> None:
        if wanted != self._hidden:
            self._llama.llama_set_embeddings(self._context, wanted)
            self._hidden = wanted

    def _decode(self) -> None:
        LOG.forget()
        status = self._llama.llama_decode(self._context, self._batch.struct)
        if status == _NO_SLOT:
            raise ContextFull("llama.cpp's cache has no room for these tokens; raise --ctx")
        if status == _ABORTED:
            raise RuntimeFailure("the pass was aborted")
        if status != 0:
            raise RuntimeFailure(f"llama.cpp failed on a batch of {self._batch.count} tokens: {LOG.complaint()}")

    def _scores(self, work: list[Work], rows: list[list[int]]) -> list[Scores]:
        outputs = self._batch.outputs
        if not outputs:
            return [Scores(np.empty((0, self.vocabulary.size), np.float32), None) for _ in work]
        logits = np.ctypeslib.as_array(self._llama.llama_get_logits(self._context), (outputs, self.vocabulary.size))
        hidden = None
        if self._hidden:
            hidden = np.ctypeslib.as_array(self._llama.llama_get_embeddings(self._context), (outputs, self.width))
        scores = []
        for item, index in zip(work, rows, strict=True):
            states = hidden if item.hidden else None
            if len(index) == outputs:
                scores.append(Scores(logits, states))
            else:
                scores.append(Scores(logits[index], None if states is None else states[index]))
        return scores


class LlamaCppStock(LlamaCpp):
    """The same without our kernels."""

    name = "llamacpp-stock"

    @classmethod
    def kernels_for(cls, header: GGUFHeader) -> Kernels:
        return Kernels(None)


def _free(model: Any, context: Any) -> None:
    llama().llama_free(context)
    llama().llama_model_free(model)


class _Progress:
    """llama.cpp's callback: False ends the loading, which an exception of ours must do from outside."""

    def __init__(self, report: Callable[[float], Any] | None, signals: list[int]) -> None:
        self._report, self._signals = report, signals
        self.error: BaseException | None = None

    @property
    def stopped(self) -> bool:
        return self.error is not None or bool(self._signals)

    def __call__(self, share: float, _user_data: Any) -> bool:
        try:
            if self._report is not None and not self.stopped:
                self._report(share)
        except BaseException as error:  # ctypes would print and swallow it
            self.error = error
        return not self.stopped


def _check_counts(options: RuntimeOptions) -> None:
    if options.ctx * options.sequences >= 1 << 31:
        raise UsageError(f"ctx is {options.ctx}; llama.cpp can't count so many tokens")
    if options.sequences * options.branches > llama().llama_max_parallel_sequences():
        raise UsageError(
            f"{options.sequences} sequences of {options.branches} branches are more than llama.cpp can hold"
        )


def _model_params(options: RuntimeOptions, header: GGUFHeader, layers: int, ours: bool) -> Any:
    library = llama()
    params = library.llama_model_default_params()
    params.n_gpu_layers = layers
    params.split_mode = SPLIT_MODES.index(options.split_mode)
    params.main_gpu = options.main_gpu
    params.use_extra_bufts = options.repack
    mmap = options.mmap
    rearranged = _REPACKED.union(TYPES if ours else ())
    if mmap is None and options.repack and any(tensor.type.name in rearranged for tensor in header.tensors):
        mmap = False  # weights that are rearranged into memory of their own would be there twice
    if mmap is not None:
        params.load_mode = library.LLAMA_LOAD_MODE_MMAP if mmap else library.LLAMA_LOAD_MODE_NONE
    return params


def _context_params(options: RuntimeOptions, ours: bool) -> Any:
    library = llama()
    params = library.llama_context_default_params()
    threads = options.threads or default_threads()
    params.n_ctx = options.ctx * options.sequences
    params.n_batch = params.n_ubatch = max(options.batch, options.draft_tokens + 1)
    params.n_seq_max = options.sequences * options.branches
    # without this, room for the logits of a whole prefill chunk is reserved: 300 MB for a vocabulary of 150,000
    params.n_outputs_max = options.sequences * max(options.draft_tokens + 1, options.branches)
    params.n_threads = params.n_threads_batch = threads
    params.type_k = params.type_v = _TYPE_NUMBERS[options.cache_type]
    params.pooling_type = library.LLAMA_POOLING_TYPE_NONE
    if options.flash_attention is not None:
        params.flash_attn_type = int(options.flash_attention)
    elif ours:  # llama.cpp's own choice is no wherever attention runs on another device than the cache lies on
        params.flash_attn_type = int(True)
    params.kv_unified = True  # cells that belong to several sequences, which trees need
    params.swa_full = True  # a cache that drops what slid out of the window can't be rewound
    params.no_perf = True
    return params
