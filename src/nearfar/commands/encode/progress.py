"""The progress bar of commands that encode and search the texts of a file."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


@contextmanager
def progress_bar(
    what: str, total: int, *, shown: bool, done: int = 0, unit: str = "texts", stderr: bool = False
) -> Iterator[Callable[[int], None]]:
    """A progress bar with rate and remaining time; yields a function that advances it by a number of units.

    It is drawn on the standard output or, with ``stderr``, on the standard error; only in a terminal.
    """

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f} {unit}/s")

    columns = (TextColumn(escape(what)), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    console = Console(file=sys.stderr if stderr else sys.stdout)  # not what a library redirects the output to
    with Progress(
        *columns,
        console=console,
        transient=True,
        disable=not shown or not console.is_terminal,
        speed_estimate_period=120,
    ) as bar:
        task = bar.add_task(what, total=total, completed=done)
        yield lambda count: bar.advance(task, count)
