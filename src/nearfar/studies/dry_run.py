"""What a study would do: its cells, what is finished, and data that are missing. Nothing is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nearfar.config.calls import accepts_settings
from nearfar.config.study import StudyConfig
from nearfar.data.paths import as_path
from nearfar.disk import path_errors
from nearfar.jobs import Job, JobStore, shard_of, with_inputs
from nearfar.studies.plan import CellJobs, check_rows, plan_jobs
from nearfar.studies.run import cells_folder, check_folder, resolve_study
from nearfar.studies.sources import HUB
from nearfar.studies.spec import Study

if TYPE_CHECKING:
    import os


@dataclass(frozen=True, kw_only=True)
class RowPlan:
    """The cells of one row."""

    row: str
    cells: int
    finished: int
    missing: tuple[str, ...]
    """Data and models that are missing, each with how to get it."""
    lines: tuple[str, ...]
    """The row in words."""


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a study would do."""

    title: str
    scale: str | None
    rows: tuple[RowPlan, ...]
    cells: tuple[CellJobs, ...]
    jobs: int
    """Number of different jobs of the cells that run, trainings that evaluations need among them."""
    finished: int
    """Number of jobs that are finished, or needed by finished ones alone."""
    downloads: tuple[str, ...]
    """What is read from the Hugging Face Hub."""
    scripts: tuple[str, ...] = ()
    """Python scripts of the study's author that the jobs run, relative to the study file."""

    def lines(self) -> list[str]:
        """The plan as text."""
        shown = [self.title + (f", scale {self.scale}" if self.scale else "")]
        for row in self.rows:
            shown += ["", *row.lines]
        counted = f"{len(self.cells)} cells, {self.jobs} jobs of cells whose data are here, {self.finished} finished"
        shown += ["", counted]
        if self.downloads:
            shown += ["read from the hub unless cached:", *(f"  {one}" for one in self.downloads)]
        if self.scripts:
            shown += ["runs code of the study's author:", *(f"  {one}" for one in self.scripts)]
        return shown


@accepts_settings(StudyConfig)
@path_errors()
def dry_run(file: "str | os.PathLike[str] | Study", config: StudyConfig) -> DryRun:
    """Plan a study: check everything that is checked before its first job, and count. Writes nothing.

    Raises:
        NearfarError: as :func:`nearfar.study` before its first job.
    """
    study = resolve_study(file, config)
    check_folder(config, study)
    cells = [cell for cell in plan_jobs(study) if not config.only or cell.cell.row.id in config.only]
    store = JobStore(cells_folder(config))
    check_rows(study, (cell for cell in cells if not cell.missing), store)
    runnable = list({job.key: job for cell in cells if not cell.missing for job in cell.jobs}.values())
    jobs = with_inputs(shard_of(runnable, config.shard_numbers))
    finished = {job.key for job in jobs if store.is_finished(job)}
    users: dict[str, list[Job]] = {}
    for job in jobs:
        for one in job.inputs.values():
            users.setdefault(one.key, []).append(job)
    done = [
        job
        for job in jobs
        if job.key in finished or (job.key in users and all(user.key in finished for user in users[job.key]))
    ]
    names = config.only or [row.id for row in study.rows]
    return DryRun(
        title=study.title,
        scale=study.scale,
        rows=tuple(_row(study, name, [cell for cell in cells if cell.cell.row.id == name], store) for name in names),
        cells=tuple(cells),
        jobs=len(jobs),
        finished=len(done),
        downloads=tuple(dict.fromkeys(one.advice for cell in cells for one in cell.sources if one.fingerprint == HUB)),
        scripts=tuple(dict.fromkeys(one for cell in cells for one in cell.scripts)),
    )


def _row(study: Study, name: str, cells: Sequence[CellJobs], store: JobStore) -> RowPlan:
    row = study.row(name)
    finished = sum(all(store.is_finished(job) for job in cell.jobs) for cell in cells)
    missing = tuple(dict.fromkeys(one.problem for cell in cells for one in cell.missing))
    parts = [f"{len(cells)} {'cell' if len(cells) == 1 else 'cells'}, {finished} finished"]
    parts.append(" then ".join(step.name for step in row.steps) or "no steps: numbers of the paper only")
    parts += [f"{axis}: {', '.join(study.axis(axis).labels)}" for axis in row.axes if row.steps]
    if len(row.replicates) > 1:
        parts.append("replicates: " + "; ".join(map(_words, row.replicates)))
    parts += [f"missing: {one}" for one in missing]
    parts += [f"needs {one}" for one in row.needs if not as_path(one.partition(": ")[0]).exists()]
    head = f"{row.id} ({row.name})" if row.name != row.id else row.id
    lines = (head, *(f"  {part}" for part in parts))
    return RowPlan(row=name, cells=len(cells), finished=finished, missing=missing, lines=lines)


def _words(replicate: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in replicate.items())
