"""Progress of long work on standard error: bars on a terminal, a line a step elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .streams import one_line


class ConsoleReporter:
    """Implements `Reporter`."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(20),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[what]}", markup=False),
        )
        self._bars = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._task: TaskID | None = None

    def __enter__(self) -> ConsoleReporter:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        self._bars.stop()

    def step(self, title: str, total: int) -> None:
        self._finish()
        title = one_line(title)  # with names from files that anybody may have made
        if self._bars.disable:
            self._console.print(title, markup=False, highlight=False, soft_wrap=True)
        self._task = self._bars.add_task(title, total=total or None, what="")

    def advance(self, done: int, what: str = "") -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=done, what=what)

    def note(self, text: str) -> None:
        self._console.print(f"note: {one_line(text)}", markup=False, highlight=False, soft_wrap=True)

    def _finish(self) -> None:
        if self._task is not None:
            total = self._bars.tasks[-1].total or 1
            self._bars.update(self._task, total=total, completed=total, what="")
            self._task = None
