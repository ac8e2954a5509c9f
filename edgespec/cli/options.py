"""Options that several commands share, and how they become a loaded model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edgespec.strategies import STRATEGIES

from .streams import notice

if TYPE_CHECKING:
    from edgespec.model import Model

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _apply(options: list[Callable[[Any], Any]], command: _Command) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command


class _GpuLayers(click.ParamType[int | None]):
    name = "N|auto|all"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if value == "auto":
            return None
        if value == "all":
            return -1
        if value.isascii() and value.isdecimal() and len(value) < 10:
            return int(value)
        self.fail(f"{value!r} is not a number, 'auto' or 'all'", param, ctx)


def model_options(command: _Command) -> _Command:
    """MODEL and how to load it."""
    return _apply(
        [
            click.argument("model", required=False),
            click.option("--draft", help="A smaller model with the same vocabulary, to draft: a GGUF file or a name."),
            click.option("--strategy", type=click.Choice(STRATEGIES), default="auto", show_default=True,
                         help="Who drafts. auto: whatever is expected to be fastest, plain decoding included."),
            click.option("--draft-length", default="auto", show_default=True, metavar="auto|practice|N",
                         help="Tokens to draft: by expected speed, by recent acceptance, or always N."),
            click.option("--draft-branches", type=click.IntRange(1, 16), default=1, show_default=True,
                         help="Paths that a draft model follows at once; 1 drafts a chain."),
            click.option("--bit-exact", is_flag=True,
                         help="Draft only what can't change even the rounding; see --cache-type and --repack."),
            click.option("--runtime", type=click.Choice(["auto", "llamacpp", "llamacpp-stock"]), default="auto",
                         show_default=True, help="What runs the model; llamacpp-stock is without our own kernels."),
            click.option("--ctx", type=click.IntRange(1), help="Tokens of prompt and answer together. [default: 4096]"),
            click.option("--threads", type=click.IntRange(1), help="CPU threads. [default: one a core]"),
            click.option("--gpu-layers", type=_GpuLayers(), default="auto", show_default=True,
                         help="Layers on a GPU, where llama-cpp-python was built for one. auto: as many as fit."),
            click.option("--split-mode", type=click.Choice(["none", "layer", "row"]), default="layer",
                         show_default=True, help="How several GPUs share a model."),
            click.option("--cache-type",
                         type=click.Choice(["f16", "f32", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]),
                         help="Type of the KV cache; small ones save memory and change answers a little. "
                         "[default: f16; bf16 with --bit-exact and without our kernels]"),
            click.option("--flash-attention/--no-flash-attention", default=None, help="[default: llama.cpp decides]"),
            click.option("--mmap/--no-mmap", default=None,
                         help="Map weights from their file. [default: where it saves memory]"),
            click.option("--repack/--no-repack", default=None,
                         help="Rearrange the weights for this CPU; no: without our own kernels, too. "
                         "[default: yes; no with --bit-exact and without our kernels]"),
        ],
        command,
    )  # fmt: skip


def sampling_options(temperature: float, top_k: int = 0, top_p: float = 1.0) -> Callable[[_Command], _Command]:
    """How the next token is chosen, with a command's own defaults."""
    number = click.FLOAT

    def decorate(command: _Command) -> _Command:
        return _apply(
            [
                click.option("-n", "--max-tokens", type=click.IntRange(0),
                             help="At most so many tokens. [default: until the answer ends]"),
                click.option("--temperature", type=click.FloatRange(0), default=temperature, show_default=True,
                             help="0 takes the likeliest token each time."),
                click.option("--top-k", type=click.IntRange(0), default=top_k, show_default=True, help="0: off."),
                click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), default=top_p, show_default=True,
                             help="1: off."),
                click.option("--min-p", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="0: off."),
                click.option("--typical-p", type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True,
                             help="1: off."),
                click.option("--repetition-penalty", type=click.FloatRange(0, min_open=True), default=1.0,
                             show_default=True, help="1: off."),
                click.option("--presence-penalty", type=number, default=0.0, show_default=True),
                click.option("--frequency-penalty", type=number, default=0.0, show_default=True),
                click.option("--seed", type=click.IntRange(0), help="Makes draws repeatable."),
                click.option("--stop", multiple=True, help="Text that ends the answer; may be given several times."),
            ],
            command,
        )  # fmt: skip

    return decorate


_LOADING = (
    "draft", "strategy", "draft_length", "draft_branches", "bit_exact", "runtime", "ctx", "threads", "gpu_layers",
    "split_mode", "cache_type", "flash_attention", "mmap", "repack",
)  # fmt: skip


@contextlib.contextmanager
def loaded(model: str | None, options: dict[str, Any]) -> Iterator[Model]:
    """The model that the shared options describe; takes them out of `options`, what is left is for generating."""
    # loading numpy and llama.cpp takes half a second, which `--help` and usage errors shouldn't
    from edgespec.loading import load

    loading = {name: options.pop(name) for name in _LOADING}
    for name in ("cache_type", "repack"):
        if loading[name] is None:  # whose default depends on other options
            del loading[name]
    with load(model, **loading, notify=lambda line: notice(f"note: {line}")) as result:
        yield result
