"""The progress bar of whatever goes through many texts."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Task
    from rich.text import Text


def draws_bars(console: "Console") -> bool:
    """Whether the console shows a progress bar: in a terminal or a notebook, unless it is quiet."""
    return not console.quiet and (console.is_terminal or console.is_jupyter)


@contextmanager
def progress_bar(
    what: str,
    total: int,
    *,
    shown: bool,
    done: int = 0,
    unit: str = "texts",
    stderr: bool = False,
    console: "Console | None" = None,
) -> Iterator[Callable[[int], None]]:
    """A progress bar with rate and remaining time; yields a function that advances it by a number of units.

    It is drawn on ``console``, by default the standard output or, with ``stderr``, the standard error; only in a
    terminal or a notebook.
    """
    if not shown:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: "Task") -> "Text":
            return Text("" if task.speed is None else f"{task.speed:,.0f} {unit}/s")

    console = console or Console(file=sys.stderr if stderr else sys.stdout)  # not what a library redirects to
    with Progress(
        *(TextColumn(escape(what)), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn()),
        console=console,
        transient=True,
        disable=not draws_bars(console),
        speed_estimate_period=120,
    ) as bar:
        task = bar.add_task(what, total=total, completed=done)
        yield lambda count: bar.advance(task, count)
