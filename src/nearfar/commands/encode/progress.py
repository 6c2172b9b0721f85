"""The progress bar of commands that encode a file of texts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


@contextmanager
def encoding_bar(
    total: int, done: int, *, shown: bool, what: str = "encoding", stderr: bool = False
) -> Iterator[Callable[[int], None]]:
    """A progress bar with rate and remaining time; yields a function that advances it by a number of texts.

    It is drawn on the standard output, or with ``stderr`` beside it.
    """

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f} texts/s")

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    console = Console(stderr=stderr)
    with Progress(
        *columns,
        console=console,
        transient=True,
        disable=not shown or (stderr and not console.is_terminal),
        speed_estimate_period=120,
    ) as bar:
        task = bar.add_task(what, total=total, completed=done)
        yield lambda texts: bar.advance(task, texts)
