"""Shows the progress of a study: a line for each cell that ends, and in a terminal a bar and the running cells."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nearfar.commands.study.expand import MODEL, Cell

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.jobs import Job, JobEvent

MAX_NAMES = 2
"""Number of cells that the line of a shared job names."""


def job_names(cells: Sequence[Cell]) -> dict[str, str]:
    """Key of a job -> its step and its cells in words: ``train: scl (lambda 0.3, seed 1)``."""
    used: dict[str, list[str]] = {}
    steps: dict[str, str] = {}
    for cell in cells:
        for job in _with_models(cell.jobs):
            steps[job.key] = job.function.rpartition(":")[2]
            names = used.setdefault(job.key, [])
            if cell.name not in names:
                names.append(cell.name)
    return {key: f"{steps[key]}: {_listed(names)}" for key, names in used.items()}


def _with_models(jobs: "Sequence[Job]") -> "Iterator[Job]":
    """The jobs and the trainings of their models."""
    for job in jobs:
        yield from _with_models([job.inputs[MODEL]] if MODEL in job.inputs else [])
        yield job


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMES
    return "; ".join(names[:MAX_NAMES]) + (f"; and {more} more" if more > 0 else "")


@contextmanager
def shown(console: "Console", names: Mapping[str, str]) -> "Iterator[Callable[[JobEvent], None]]":
    """Yields a function that shows an event of a job."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        speed_estimate_period=3600,
    )
    whole = bar.add_task("jobs", total=None)
    running: dict[str, object] = {}
    started: dict[str, float] = {}

    def show(event: "JobEvent") -> None:
        key = event.job.key
        name = names.get(key, key)
        if event.kind == "started":
            started[key] = time.monotonic()
            running[key] = bar.add_task(name, total=None)
        elif key in running:
            bar.remove_task(running.pop(key))  # type: ignore[arg-type]
        text = {
            "finished": f"{name}, {_duration(event.seconds)}",
            "failed": f"failed: {name}: {event.message}",
            "retried": f"its worker died, run again: {name}: {event.message}",
            "skipped": f"skipped: {name}: {event.message}",
            "waiting": f"another process runs it: {name}",
        }.get(event.kind)
        bar.update(whole, total=event.total, completed=event.done)
        if text is not None:
            console.print(f"[{event.done}/{event.total}] {text}", markup=False, highlight=False)

    with bar:
        yield show


def _duration(seconds: float | None) -> str:
    return "finished" if seconds is None else duration(seconds)


def duration(seconds: float) -> str:
    """A duration in words.

    >>> duration(0.4), duration(75), duration(7300)
    ('0.4 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min {seconds % 60:.0f} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
