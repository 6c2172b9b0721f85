"""What a study would do: its cells, what is finished, data that are missing, time and disk. Nothing is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nearfar.commands.study.check_rows import check_rows
from nearfar.commands.study.command import cells_folder, check_folder, resolve_study
from nearfar.commands.study.estimate import Estimator
from nearfar.commands.study.expand import Cell, expand
from nearfar.commands.study.progress import duration
from nearfar.config.calls import accepts_settings
from nearfar.config.study import Study
from nearfar.config.study.run import StudyConfig
from nearfar.data.paths import as_path
from nearfar.disk import path_errors
from nearfar.jobs import Job, JobStore, shard_of
from nearfar.jobs.graph import with_inputs

if TYPE_CHECKING:
    import os

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class RowPlan:
    """The cells of one row."""

    row: str
    name: str
    cells: int
    finished: int
    steps: tuple[str, ...]
    axes: Mapping[str, tuple[str, ...]]
    """Axis -> labels."""
    replicates: tuple[Mapping[str, object], ...]
    missing: tuple[str, ...]
    """Data and models that are missing, each with how to get it."""
    needs: tuple[str, ...]
    """Files that are missing, each with the command that makes it."""


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a study would do."""

    title: str
    scale: str | None
    rows: tuple[RowPlan, ...]
    cells: tuple[Cell, ...]
    jobs: int
    """Number of different jobs of the cells that run, trainings that evaluations need among them."""
    finished: int
    """Number of jobs that are finished."""
    seconds: float | None
    """Estimate for the jobs that are not finished, one after the other; None if none of them has an estimate."""
    unknown: int
    """Number of jobs to run without an estimate."""
    basis: tuple[str, ...]
    """What the estimate is based on."""
    disk: float
    """Estimate of the bytes that the jobs to run write."""
    downloads: tuple[str, ...]
    """What is read from the Hugging Face Hub."""
    scripts: tuple[str, ...] = ()
    """Python scripts of the study's author that the jobs run, relative to the study file."""

    def lines(self, *, workers: int = 1) -> list[str]:
        """The plan as text."""
        shown = [self.title + (f", scale {self.scale}" if self.scale else "")]
        for row in self.rows:
            parts = [f"{row.cells} {'cell' if row.cells == 1 else 'cells'}, {row.finished} finished"]
            parts += [" then ".join(row.steps)] if row.steps else ["no steps: numbers of the paper only"]
            parts += [f"{name}: {', '.join(labels)}" for name, labels in row.axes.items()]
            if len(row.replicates) > 1:
                parts.append("replicates: " + "; ".join(_replicate(one) for one in row.replicates))
            shown += ["", f"{row.row} ({row.name})" if row.name != row.row else row.row, *(f"  {one}" for one in parts)]
            shown += [f"  missing: {one}" for one in row.missing]
            shown += [f"  needs {one}" for one in row.needs]
        shown += [
            "",
            f"{len(self.cells)} cells, {self.jobs} jobs of cells whose data are here, {self.finished} finished",
        ]
        if self.downloads:
            shown += ["read from the hub unless cached:", *(f"  {one}" for one in self.downloads)]
        if self.scripts:
            shown += ["runs code of the study's author:", *(f"  {one}" for one in self.scripts)]
        if self.jobs > self.finished:
            shown += self._estimates(workers)
        return shown

    def _estimates(self, workers: int) -> list[str]:
        if self.seconds is None:
            about = f"unknown, {self.unknown} jobs are of unknown size"
        else:
            about = f"about {duration(self.seconds / workers)}" + (f" with {workers} workers" if workers > 1 else "")
            if self.unknown:
                about += f", without {self.unknown} jobs of unknown size"
        return [f"time: {about}", *(f"  {one}" for one in self.basis), f"disk: about {self.disk / GIB:.2f} GiB"]


def _replicate(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


@accepts_settings(StudyConfig)
@path_errors()
def dry_run(file: "str | os.PathLike[str] | Study", config: StudyConfig) -> DryRun:
    """Plan a study: check everything that is checked before its first job, and count. Writes nothing.

    Raises:
        NearfarError: as :func:`nearfar.study` before its first job.
    """
    loaded = resolve_study(file, config)
    check_folder(config, loaded)
    cells = [cell for cell in expand(loaded) if not config.only or cell.row_id in config.only]
    store = JobStore(cells_folder(config))
    check_rows(loaded, (cell for cell in cells if not cell.missing), store)
    runnable = list({job.key: job for cell in cells if not cell.missing for job in cell.jobs}.values())
    jobs = with_inputs(shard_of(runnable, config.shard_numbers))
    finished = {job.key for job in jobs if store.is_finished(job)}
    users: dict[str, list[Job]] = {}
    for job in jobs:
        for one in job.inputs.values():
            users.setdefault(one.key, []).append(job)
    todo = [job for job in jobs if job.key not in finished and not _is_done_with(job, users, finished)]
    estimates = Estimator(store).estimate(todo)
    return DryRun(
        title=loaded.title,
        scale=loaded.scale,
        rows=tuple(_row(loaded, name, cells, store) for name in dict.fromkeys(row.id for row in loaded.rows))
        if not config.only
        else tuple(_row(loaded, name, cells, store) for name in config.only),
        cells=tuple(cells),
        jobs=len(jobs),
        finished=len(jobs) - len(todo),
        seconds=None if todo and estimates.unknown == len(todo) else estimates.seconds,
        unknown=estimates.unknown,
        basis=estimates.basis,
        disk=estimates.disk,
        downloads=tuple(dict.fromkeys(one.advice for cell in cells for one in cell.downloads)),
        scripts=tuple(dict.fromkeys(one for cell in cells for one in cell.scripts)),
    )


def _is_done_with(job: Job, users: Mapping[str, Sequence[Job]], finished: set[str]) -> bool:
    """Whether a job is only needed by finished ones."""
    return job.key in users and all(user.key in finished for user in users[job.key])


def _row(loaded: Study, name: str, cells: Sequence[Cell], store: JobStore) -> RowPlan:
    row, own = loaded.row(name), [cell for cell in cells if cell.row_id == name]
    return RowPlan(
        row=name,
        name=row.name,
        cells=len(own),
        finished=sum(all(store.is_finished(job) for job in cell.jobs) for cell in own),
        steps=tuple(step.name for step in row.steps),
        axes={axis: loaded.axis(axis).labels for axis in row.axes if row.steps},
        replicates=row.replicates,
        missing=tuple(dict.fromkeys(one.problem for cell in own for one in cell.missing)),
        needs=tuple(one for one in row.needs if not as_path(one.partition(": ")[0]).exists()),
    )
