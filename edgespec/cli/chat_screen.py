"""How answers appear: as plain text while they come, or as Markdown a block at a time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import Any

import click

from edgespec.dialogue import Dialogue
from edgespec.events import Event, Stats

from .streams import emit, harmless, notice

_TAIL = 4
"""Lines of the terminal that a block which is still growing leaves free."""
_REDRAWN_S = 1 / 12
"""The growing block is drawn no more often than that."""


def show_plain(events: Iterable[Event], show_drafts: bool) -> None:
    """Print events as they come; tokens that a draft proposed are shaded where that is wanted."""
    for event in events:
        text = harmless(event.text)
        emit(click.style(text, dim=True, underline=True) if show_drafts and event.drafted else text, False)
    emit("")


def show_markdown(events: Iterable[Event]) -> None:
    """Print Markdown: each block when it is whole, the growing one live below.

    Nothing is drawn by a thread, and no stream is redirected: an interrupt at the wrong moment would leave either
    behind, and a thread would go on wiping lines, those of the next prompt, too.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.markdown import Markdown
    from rich.text import Text

    console = Console()
    text, drawn = "", 0.0
    live = Live(
        console=console, transient=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False,
        vertical_overflow="crop",
    )  # fmt: skip
    live.start()  # when this is interrupted, only the cursor stays hidden, which the prompt shows again
    try:
        for event in events:
            text += harmless(event.text)
            whole, text = split_blocks(text)
            due = time.monotonic() - drawn >= _REDRAWN_S
            live.update(Text("\n".join(text.splitlines()[-max(1, console.height - _TAIL) :])), refresh=due)
            if whole:
                console.print(Markdown(whole))
            if due or whole:
                drawn = time.monotonic()
    finally:  # also what came before an interrupt
        live.update(Text(""))
        live.stop()
        with contextlib.suppress(KeyboardInterrupt):
            console.print(Markdown(text))


def split_blocks(text: str) -> tuple[str, str]:
    """Whole Markdown blocks, and what may still grow: from the last blank line outside of a code block on."""
    cut, position, fence = 0, 0, ""
    for line in text.splitlines(keepends=True):
        position += len(line)
        stripped = line.strip()
        if fence:
            if stripped.startswith(fence) and not stripped.strip(fence[0]):
                fence, cut = "", position if line.endswith("\n") else cut
        elif stripped.startswith(("```", "~~~")):
            fence = stripped[:3]
        elif not stripped and line.endswith("\n"):
            cut = position
    return text[:cut], text[cut:]


def show_stats(dialogue: Dialogue) -> None:
    """The line after an answer, on standard error."""
    if dialogue.stats is not None:
        notice(stats_line(dialogue.stats, dialogue.speed_up()), dim=True)


def stats_line(stats: Stats, speed_up: float | None) -> str:
    """What a person wants to know of an answer, on one line."""
    parts = [f"{stats.tokens_per_second:.1f} tokens/s"]
    if stats.drafted_tokens and speed_up is not None:
        parts.append(f"{speed_up:.2f} x plain")
    if stats.drafted_tokens:
        parts.append(f"{stats.acceptance:.0%} of {stats.drafted_tokens} drafted accepted")
    else:
        parts.append("nothing drafted")
    parts.append(f"{stats.tokens_per_pass:.2f} tokens/pass")
    parts.append(f"first token {stats.time_to_first_token_s:.2f} s")
    parts.append(f"{stats.prompt_tokens - stats.cached_tokens} of {stats.prompt_tokens} prompt tokens new")
    return f"[{' · '.join(parts)}]"


def stats_table(dialogue: Dialogue) -> str:
    """Everything that is known of the last answer."""
    from .tables import file_size, table

    stats = dialogue.stats
    if stats is None:
        return "no answer has ended yet"
    by_depth = zip(stats.accepted_by_depth, stats.drafted_by_depth, strict=True)
    speed_up = dialogue.speed_up()
    if not stats.drafted_tokens:
        over_plain = "nothing was drafted"
    else:
        over_plain = "no plain pass was timed yet" if speed_up is None else f"{speed_up:.2f} x (plain passes timed)"
    rows: list[tuple[str, Any]] = [
        ("strategy", stats.strategy),
        ("runtime", stats.runtime),
        ("answer", f"{stats.completion_tokens} tokens in {stats.target_passes} passes"),
        ("speed", f"{stats.tokens_per_second:.1f} tokens/s"),
        ("over plain", over_plain),
        ("prompt", f"{stats.prompt_tokens} tokens, {stats.cached_tokens} of them in the cache"),
        ("first token", f"{stats.time_to_first_token_s:.2f} s"),
        ("drafted", f"{stats.drafted_tokens}, {stats.accepted_tokens} accepted ({stats.acceptance:.0%})"),
        ("by depth", " ".join(f"{a / d:.0%}" for a, d in by_depth if d) or "-"),
        ("peak memory", file_size(stats.peak_memory_bytes)),
    ]
    return table(("", ""), rows).strip("\n")
