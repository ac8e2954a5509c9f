"""Numbers and tables as people read them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence


def file_size(size: float) -> str:
    """Bytes in decimal units, as shops and file managers give them."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A plain table as wide as its content: lines can be cut by other programs."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, header_style="")
    for column in columns:
        grid.add_column(column, no_wrap=True)
    for row in rows:
        grid.add_row(*map(Text, row))  # as text: a name may hold what rich would take for markup
    out = io.StringIO()
    Console(file=out, width=10_000, color_system=None).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
