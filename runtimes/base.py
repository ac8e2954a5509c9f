"""The `Runtime` protocol: one loaded model that verifies token trees for several sequences in one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from edgespec.models.checks import check_choice, check_kind, whole
from edgespec.models.gguf import GGUFHeader

from .tree import TokenTree

CACHE_TYPES = ("f16", "f32", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
SPLIT_MODES = ("none", "layer", "row")
MAX_DRAFT_TOKENS = 1024
_MOST = (1 << 31) - 1
_RANGES = {
    "ctx": (1, _MOST), "sequences": (1, 1024), "draft_tokens": (1, MAX_DRAFT_TOKENS), "branches": (1, 1024),
    "threads": (1, 512), "batch": (1, 1 << 16), "gpu_layers": (-1, _MOST), "main_gpu": (0, 255),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """How a model is loaded.

    Attributes:
        ctx: tokens that one sequence can hold, prompt and answer together.
        sequences: how many sequences can be open at once.
        draft_tokens: the most uncommitted tree nodes of one sequence.
        branches: the most leaves of an uncommitted tree.
        threads: CPU threads; None: one for each physical core.
        batch: tokens of one prefill pass.
        gpu_layers: layers kept on a GPU; -1: all that there are; None: as many as fit into its free memory.
        split_mode: how several GPUs share a model.
        main_gpu: the GPU used when `split_mode` is "none".
        cache_type: type of the KV cache's entries.
        flash_attention: None leaves the choice to the backend.
        mmap: map the weights from the file; None: where that saves memory.
        repack: let the backend rearrange the weights for this CPU, which takes a while and pays when they are used.

    Raises:
        UsageError: a value of the wrong type or out of range.
    """

    ctx: int = 4096
    sequences: int = 1
    draft_tokens: int = 32
    branches: int = 8
    threads: int | None = None
    batch: int = 512
    gpu_layers: int | None = None
    split_mode: str = "layer"
    main_gpu: int = 0
    cache_type: str = "f16"
    flash_attention: bool | None = None
    mmap: bool | None = None
    repack: bool = True

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if value is not None or name not in ("threads", "gpu_layers"):
                object.__setattr__(self, name, whole(name, value, least, most))
        check_choice("split_mode", self.split_mode, SPLIT_MODES)
        check_choice("cache_type", self.cache_type, CACHE_TYPES)
        check_kind("flash_attention", self.flash_attention, bool, None)
        check_kind("mmap", self.mmap, bool, None)
        check_kind("repack", self.repack, bool)


class Sequence(Protocol):
    """One cached sequence of a runtime."""

    @property
    def length(self) -> int:
        """Committed tokens in the cache."""


class Work(NamedTuple):
    """What one sequence wants from a forward pass.

    `tree` hangs under the last committed token. Where it extends the tree of the sequence's last pass (nothing was
    committed since), its first nodes are in the cache already and only the new ones are computed.

    Attributes:
        sequence: one that this runtime opened.
        rows: nodes whose logits are wanted; None: all nodes that are computed.
        hidden: whether the final hidden states of those nodes are wanted too.
    """

    sequence: Any
    tree: TokenTree
    rows: tuple[int, ...] | None = None
    hidden: bool = False


class Scores(NamedTuple):
    """What came out for one `Work`, one row for each wanted node, in the order of the nodes.

    The arrays may be views of the backend's memory: they are good until the runtime's next pass.

    Attributes:
        logits: float32 (rows, vocabulary).
        hidden: float32 (rows, width), the state after the last norm; None unless asked for.
    """

    logits: np.ndarray
    hidden: np.ndarray | None


class Vocabulary(Protocol):
    """Tokens of a model, and text to and from them."""

    size: int
    bos: int | None
    """The token that begins a text, where the model has one."""
    adds_bos: bool
    """Whether that token is put before every text."""

    @property
    def longest(self) -> int:
        """Bytes of the longest token: a text of more than n times as many has more than n tokens."""

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end an answer."""

    @property
    def fingerprint(self) -> str:
        """Equal for vocabularies whose tokens are equal, id by id."""

    def text(self, token: int) -> str:
        """The token as it stands in the vocabulary."""

    def encode(self, text: str, *, special: bool, add_bos: bool) -> list[int]:
        """Tokens of a text. `special`: whether text like `<|im_end|>` becomes the control token of that name."""

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes that a token stands for; nothing for control tokens unless `special`."""


@runtime_checkable
class Runtime(Protocol):
    """One loaded model. See `LlamaCpp` for the first implementation.

    A sequence always holds its committed tokens and, after `forward`, the nodes of an uncommitted tree. `commit` and
    `truncate` end the tree.
    """

    name: str
    options: RuntimeOptions
    notice: str
    """What its user should know about how this model runs; empty: nothing."""

    @classmethod
    def load(cls, path: Path, options: RuntimeOptions, progress: Callable[[float], None] | None = None) -> Runtime:
        """Load a model file that was checked."""

    @classmethod
    def stable_options(cls, header: GGUFHeader, given: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of `RuntimeOptions`, for one who gave these, with which most tokens fit in a pass that gives, to the
        last bit, what passes over single tokens give."""

    @property
    def vocabulary(self) -> Vocabulary: ...
    @property
    def identity(self) -> str:
        """Names model, backend, devices, threads and cache type: all that step times depend on."""

    @property
    def context_length(self) -> int:
        """Tokens that one sequence can hold."""

    @property
    def can_rewind(self) -> bool:
        """Whether `truncate` can go back to any length (recurrent models can't)."""

    def open(self) -> Sequence:
        """A new empty sequence."""

    def release(self, sequence: Sequence) -> None:
        """Forget a sequence and free its place."""

    def prefill(self, sequence: Sequence, tokens: list[int], stop: Callable[[], bool] | None = None) -> int:
        """Append tokens and commit them, in chunks, without logits; returns how many, fewer where `stop` said so."""

    def forward(self, work: list[Work]) -> list[Scores]:
        """Compute the new nodes of each tree in one pass."""

    def commit(self, sequence: Sequence, path: list[int]) -> None:
        """Keep these nodes (a path from the top of the tree), forget the other ones."""

    def truncate(self, sequence: Sequence, length: int) -> None:
        """Forget the uncommitted tree and all committed tokens from `length` on."""

    def close(self) -> None:
        """Free the model's memory. Safe to call twice."""
