"""Studies: a table described by a TOML file -> its cells -> jobs -> results -> means, intervals, tests and a page.

The modules, in the order of the data: ``spec`` (what a study file says), ``cells`` (rows x labels x replicates with
checked settings, and their jobs), ``sources`` (the data and models that jobs read), ``steps`` (what a job does), this
one (``nearfar study``, and what it would do), ``scores`` (results of a run -> the values of its columns), ``units``
(what is resampled), ``groups`` (all values -> one frame in groups of replicates), ``table`` (the frame -> the record
study.json), ``page`` and ``plots`` (the record -> the frame -> Markdown, LaTeX, CSV and pictures), ``papers``
(``nearfar reproduce``).
"""

import os
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.config.bounds import shard_numbers
from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import StudyConfig
from nearfar.data.paths import as_path
from nearfar.disk import create_folder, write_text
from nearfar.disk.checks import path_errors
from nearfar.evaluation.render import csv_lines, duration
from nearfar.evaluation.results import StudyTable
from nearfar.jobs import Job, JobEvent, JobsFailedError, JobStore, run_jobs, shard_of, unfinished, with_inputs
from nearfar.registry import is_of_this_process, name_of
from nearfar.studies.cells import MODEL, Cell, ScriptConfig, all_jobs, in_rounds, load_study, plan_jobs
from nearfar.studies.spec import TABLE, Study, words_of
from nearfar.types import NearfarError
from nearfar.validation import unknown_name_message

if TYPE_CHECKING:
    from rich.console import Console

MODELS = "models.csv"


@accepts_settings(StudyConfig)
@path_errors()
def study(
    file: "str | os.PathLike[str] | Study",
    config: StudyConfig,
    *,
    command: str | None = None,
    console: "Console | None" = None,
) -> StudyTable:
    """Run the cells of a study that are not finished, and write its table.

    ::

        study("table.toml", output="tables/mine")
        study("table.toml", output="tables/mine", scale="here", workers=2, only=["scl"])

    Each cell is a chain of jobs (train, finetune, evaluate, geometry, speed) that are identified by their settings and
    by the content of their data and start model. The folder of a finished job is in ``CELLS/KEY``. A call after an
    interruption, on the same folder, goes on. Rows whose data are missing are not run; the table says so.

    Args:
        file: a study file, or a study from :func:`nearfar.studies.cells.load_study`.
        config: the settings.
        command: the command that makes the table again, for its page; by default ``nearfar study`` with the settings,
            if the command line knows the methods.
        console: shows progress; by default nothing is shown.

    Returns:
        The table, also written to ``OUTPUT/study.json`` with page.md, table.csv, table.tex and plots. ``units.parquet``
        has the scores of single pairs, rows and queries that the comparisons rest on; ``models.csv`` lists the run
        folder of each trained cell.

    Raises:
        NearfarError: an invalid study; jobs that failed, after all others are finished and the table is written; an
            output that holds something else.
        KeyboardInterrupt: after Ctrl-C. Finished jobs are kept, and unfinished ones continue from their checkpoints.
    """
    from rich.console import Console

    from nearfar.studies.plots import write_outputs
    from nearfar.studies.scores import collect
    from nearfar.studies.table import build_table
    from nearfar.studies.units import UNITS

    console = console or Console(quiet=True)
    loaded, cells, chosen, store = _plan(file, config)
    runnable = [cell for cell in chosen if not cell.missing]
    advice = _distinct(chosen, "missing")
    if chosen and not runnable:
        raise NearfarError("\n  ".join([f"{loaded.file}: data or models of every row are missing:", *advice]))
    methods = {name_of(type(step.config)) for cell in cells for step in cell.steps}
    own = [name for name in methods if name and is_of_this_process(name)]
    if own and config.engine != "inline":
        raise NearfarError(
            f"{loaded.file}: the method {own[0]!r} is registered in this process, and the workers of a study do not "
            'know it. Give engine="inline", or name it as an entry point (nearfar.register_method says how).'
        )
    for line in advice:
        console.print(f"missing, so some rows are not run: {line}", markup=False, highlight=False)
    failed = _run_cells(cells, runnable, store, config, console)
    runs = collect(cells, store)
    if failed is not None and all(run.cell.missing is not None for run in runs):
        raise failed
    output = Path(config.output)
    create_folder(output)
    table = build_table(
        loaded,
        runs,
        command=command or (None if own else command_line("study", loaded.file, config)),
        resamples=config.resamples,
        seed=config.seed,
        units=output / UNITS,
    )
    write_outputs(table, output)
    _write_models(output, cells, store)
    if failed is not None:
        raise failed
    return table


def _plan(
    file: "str | os.PathLike[str] | Study", config: StudyConfig
) -> tuple[Study, list[Cell], list[Cell], JobStore]:
    """The study of a call, its cells, those of the rows that are to run, and the finished jobs.

    The placeholders are ``start``, and ``data``, the folder NEARFAR_DATA.

    Raises:
        NearfarError: as :func:`nearfar.studies.cells.load_study`; ``only`` names an unknown row; the output is a file,
            or holds the table of another study.
    """
    known = {"start": config.start, "data": os.environ.get("NEARFAR_DATA")}
    values = {name: value for name, value in known.items() if value}
    loaded = file if isinstance(file, Study) else load_study(Path(file), config.scale, placeholders=values)
    rows = [row.id for row in loaded.rows]
    for name in config.only:
        if name not in rows:
            raise NearfarError(f"--only: {unknown_name_message(name, rows, what='row')}")
    folder = Path(config.output)
    if folder.exists() and not folder.is_dir():
        raise NearfarError(f"--output {folder}: is a file; name a folder.")
    if (folder / TABLE).exists() and (title := StudyTable.load(folder / TABLE).title) != loaded.title:
        raise NearfarError(f"--output {folder}: holds the table of another study, {title!r}; choose another folder.")
    cells = plan_jobs(loaded)
    chosen = [cell for cell in cells if not config.only or cell.row.id in config.only]
    return loaded, cells, chosen, JobStore(folder / "cells" if config.cells is None else config.cells)


def _distinct(cells: Iterable[Cell], lines: str) -> tuple[str, ...]:
    """The lines ``missing`` or ``on_hub`` of what cells read."""
    return tuple(dict.fromkeys(line for cell in cells for one in cell.sources for line in getattr(one, lines)))


def _run_cells(
    cells: Sequence[Cell],
    runnable: Sequence[Cell],
    store: JobStore,
    config: StudyConfig,
    console: "Console",
) -> NearfarError | None:
    """Run the jobs that are not finished; returns the error that names those that failed."""
    from nearfar.runtime.progress import progress_bar
    from nearfar.runtime.threads import available_cores, cpu_quota

    names = {
        job.key: f"{job.function.rpartition(':')[2]}: {cell.name}"
        for cell in reversed(cells)  # of the cells that share a job, the first one names it
        for job in with_inputs(cell.jobs)
    }

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    def discard_models() -> None:
        """Remove the models that no unfinished job of the study needs."""
        every = with_inputs(all_jobs(cells))
        finished = set(filter(store.is_finished, every))
        for job in finished.difference(*(job.inputs.values() for job in every if job not in finished)):
            shutil.rmtree(store.folder(job) / "run" / "model", ignore_errors=True)

    def on_event(event: JobEvent) -> None:
        advance(event.kind in ("found", "finished", "failed", "skipped"))
        if event.kind not in ("found", "started"):
            how = event.message if event.seconds is None else duration(event.seconds)
            say(f"[{event.done}/{event.total}] {event.kind}: {names[event.job.key]}: {how}")
        if event.kind == "finished" and config.discard_models:  # now, so that models do not fill the disk
            discard_models()

    jobs = shard_of(all_jobs(in_rounds(runnable)), shard_numbers(config.shard))
    for job in _remove_without_model(jobs, store):
        say(f"its model was discarded, so it is trained again: {job.key}")
    cores = min(available_cores(), cpu_quota() or available_cores())
    failed = None
    count = sum(map(len, unfinished(jobs, store)))
    with progress_bar("jobs", count, shown=True, unit="jobs", console=console) as advance:
        try:
            run_jobs(
                jobs,
                store,
                engine=config.engine,
                workers=config.workers,
                threads=config.threads or max(1, cores // config.workers),
                ray_address=config.ray_address,
                on_event=on_event,
            )
        except JobsFailedError as error:
            named = [one._replace(message=f"{names[one.job.key]}: {one.message}") for one in error.failures]
            failed = JobsFailedError(named, error.skipped)
    if config.discard_models:
        discard_models()
    return failed


def command_line(verb: str, what: str, config: StudyConfig) -> str:
    """The command that makes a table again, with only the settings that change it.

    Of an absolute path it has the name alone: the table is the same on every machine.
    """
    given = {name: getattr(config, name) for name in ("scale", "start", "output")}
    named = ((f"--{name}", value) for name, value in given.items() if value is not None)
    words = ["nearfar", verb, what, *(word for pair in named for word in pair)]
    return shlex.join(Path(word).name if Path(word).is_absolute() else word for word in words)


def _remove_without_model(jobs: Iterable[Job], store: JobStore) -> Iterator[Job]:
    """Remove finished trainings whose model was discarded and is needed now; yields them."""
    for job in unfinished(jobs, store)[0]:
        model = job.inputs.get(MODEL)
        if model and store.is_finished(model) and not (store.folder(model) / "run" / "model").is_dir():
            shutil.rmtree(store.folder(model))
            yield model
            yield from _remove_without_model([model], store)


def _write_models(output: Path, cells: Sequence[Cell], store: JobStore) -> None:
    """Write ``models.csv``: row, axes, replicate and run folder of each model that is there; without one, no file.

    A run folder inside ``output`` is written relative to it.
    """
    root, models = output.absolute(), []
    for cell in cells:
        if (training := cell.last_training) is not None and store.is_finished(training):
            run = store.folder(training) / "run"
            if (run / "model").is_dir():
                folder = run if (run / "run.json").is_file() else run / "model"  # of a script
                shown = folder.relative_to(root) if folder.is_relative_to(root) else folder
                models.append({"row": cell.row.id, **cell.coordinates, **cell.replicate, "folder": shown})
    names = [*dict.fromkeys(name for one in models for name in one if name != "folder"), "folder"]
    if models:
        lines = [[str(one.get(name, "")) for name in names] for one in models]
        write_text(output / MODELS, csv_lines([names, *lines]))
    else:
        (output / MODELS).unlink(missing_ok=True)


@dataclass(frozen=True)
class DryRun:
    """What a study would do."""

    study: Study
    cells: tuple[Cell, ...]
    store: JobStore
    jobs: int
    """Number of different jobs of the cells that run, trainings that evaluations need among them."""
    finished: int
    """Number of jobs that are finished, or needed by finished ones alone."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Data and models that are missing, each with how to get it."""
        return _distinct(self.cells, "missing")

    @property
    def downloads(self) -> tuple[str, ...]:
        """Models, and data sets by split, that are not here and are read from the hub, each with how to get it."""
        return _distinct(self.cells, "on_hub")

    @property
    def scripts(self) -> tuple[str, ...]:
        """Python scripts of the study's author that the jobs run, relative to the study file."""
        configs = [step.config for cell in self.cells for step in cell.steps]
        return tuple(dict.fromkeys(config.file for config in configs if isinstance(config, ScriptConfig)))

    def lines(self) -> list[str]:
        """The plan as text."""
        shown = [self.study.title + (f", scale {self.study.scale}" if self.study.scale else "")]
        for _, of_row in groupby(self.cells, lambda cell: cell.row.id):
            shown += ["", *self._row_lines(list(of_row))]
        counted = f"{len(self.cells)} cells, {self.jobs} jobs of cells whose data are here or on the hub"
        shown += ["", f"{counted}, {self.finished} finished"]
        for title, listed in (
            ("not here, so read from the hub unless cached:", self.downloads),
            ("runs code of the study's author:", self.scripts),
        ):
            shown += [title, *(f"  {one}" for one in listed)] if listed else []
        return shown

    def _row_lines(self, cells: list[Cell]) -> list[str]:
        row = cells[0].row
        finished = sum(all(map(self.store.is_finished, cell.jobs)) for cell in cells)
        parts = [f"cells: {len(cells)}, {finished} finished", " then ".join(step.verb for step in cells[0].steps)]
        parts += [f"{axis.name}: {', '.join(axis.labels)}" for axis in self.study.axes_of(row)]
        parts += [f"replicate: {one}" for one in map(words_of, self.study.replicates_of(row)) if one]
        parts += [f"missing: {one}" for one in _distinct(cells, "missing")]
        parts += [f"needs {one}" for one in row.needs if not as_path(one.partition(": ")[0]).exists()]
        return [f"{row.id} ({row.name})" if row.name != row.id else row.id, *(f"  {part}" for part in parts)]


@accepts_settings(StudyConfig)
@path_errors()
def dry_run(file: "str | os.PathLike[str] | Study", config: StudyConfig) -> DryRun:
    """Plan a study: check everything that is checked before its first job, and count. Writes nothing.

    Raises:
        NearfarError: as :func:`nearfar.study` before its first job.
    """
    loaded, _, cells, store = _plan(file, config)
    jobs = shard_of(all_jobs(cell for cell in cells if not cell.missing), shard_numbers(config.shard))
    count = len(with_inputs(jobs))
    return DryRun(loaded, tuple(cells), store, count, count - len(unfinished(jobs, store)[0]))
