"""``nearfar reproduce``: runs studies of the catalog, plans them, or lists them."""

import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.commands.reproduce.catalog import check_names, table_file
from nearfar.commands.reproduce.inputs import ENCODER, write_inputs
from nearfar.commands.study.command import study, without_folders
from nearfar.config.calls import accepts_settings
from nearfar.config.reproduce import START, ReproduceConfig
from nearfar.config.study import Study, load_study
from nearfar.config.study.run import StudyConfig
from nearfar.disk import path_errors
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.commands.study.dry_run import DryRun
    from nearfar.evaluation.results import StudyTable

CELLS = "cells"
INPUTS = "inputs"
"""Folder in OUTPUT with the generated inputs of the scale ``tiny``."""
NO_DATA = "NEARFAR_DATA"
"""Stands for the data folder in paths if there is none; the message about the missing file then names it."""


@accepts_settings(ReproduceConfig)
@path_errors()
def reproduce(
    names: str | Sequence[str], config: ReproduceConfig, *, console: "Console | None" = None
) -> "dict[str, StudyTable]":
    """Run tables or figures of the papers, and write each to ``OUTPUT/NAME``.

    ::

        reproduce("liao-table-2", output="tables", scale="here", workers=2)
        reproduce(["kim-table-1", "kim-table-5"], output="tables", start="models/mine")

    The cells that tables share are run once. A call after an interruption, on the same folder, goes on.

    Args:
        names: names of tables, as ``nearfar reproduce`` lists them.
        config: the settings; see :class:`nearfar.ReproduceConfig`.
        console: shows progress; by default nothing is shown.

    Returns:
        Name -> the table, in the order of ``names``.

    Raises:
        NearfarError: an unknown name, and as :func:`nearfar.study`. Of several tables, all are run before the error of
            the first one that failed is raised.
        KeyboardInterrupt: after Ctrl-C; what is finished is kept.
    """
    chosen = _check(names, config)
    tables: dict[str, StudyTable] = {}
    failed: NearfarError | None = None
    for name in chosen:
        if config.scale == "tiny":
            write_inputs(Path(config.output) / INPUTS)
        loaded = load_table(name, config, inputs=Path(config.output) / INPUTS)
        if console is not None and len(chosen) > 1:
            console.print(f"{name}: {loaded.title}", markup=False, highlight=False)
        command = command_line(name, config)
        try:
            tables[name] = study(loaded, study_config(name, config), console=console, command=command)
        except NearfarError as error:
            failed = failed or NearfarError(f"{name}: {error}")
    if failed is not None:
        raise failed
    return tables


@accepts_settings(ReproduceConfig)
@path_errors()
def plan(names: str | Sequence[str], config: ReproduceConfig) -> "dict[str, DryRun]":
    """What :func:`reproduce` would do: cells, missing data and how to get them, time and disk. Nothing is written.

    Raises:
        NearfarError: an unknown name, and as :func:`nearfar.study` before its first job.
    """
    from nearfar.commands.study.dry_run import dry_run

    chosen = _check(names, config)
    with _inputs_for_plan(config) as inputs:
        return {name: dry_run(load_table(name, config, inputs=inputs), study_config(name, config)) for name in chosen}


def load_table(name: str, config: ReproduceConfig, *, inputs: Path) -> Study:
    """The study of a table at the scale of ``config``; ``inputs`` is the folder of the generated inputs.

    Raises:
        NearfarError: an unknown name.
    """
    start = config.start or (str(inputs / ENCODER) if config.scale == "tiny" else START)
    data = os.environ.get("NEARFAR_DATA") or NO_DATA
    return load_study(table_file(name), config.scale, placeholders={"start": start, "tiny": str(inputs), "data": data})


def study_config(name: str, config: ReproduceConfig) -> StudyConfig:
    """The settings of the study of one table: its own folder, and the folder of cells that all tables share."""
    values = {field.name: getattr(config, field.name) for field in fields(StudyConfig)}
    values["output"] = str(Path(config.output) / name)
    values["cells"] = config.cells or str(Path(config.output) / CELLS)
    return StudyConfig(**values)


def command_line(name: str, config: ReproduceConfig) -> str:
    """The command that makes a table again, without the settings that do not change it.

    Paths are shown by :func:`nearfar.commands.study.command.without_folders`.
    """
    start = [] if config.start is None else ["--start", without_folders(config.start)]
    output = without_folders(config.output)
    return shlex.join(["nearfar", "reproduce", name, "--scale", config.scale, *start, "--output", output])


def _check(names: str | Sequence[str], config: ReproduceConfig) -> list[str]:
    chosen = [names] if isinstance(names, str) else list(names)
    if not chosen:
        raise NearfarError("no table given; nearfar reproduce lists all.")
    check_names(chosen)
    if config.only and len(chosen) > 1:
        raise NearfarError("--only names rows of one table; give one table.")
    if config.start is not None and config.scale == "paper":
        raise NearfarError("--start is for the scales here and tiny; the scale paper has the paper's models.")
    return chosen


@contextmanager
def _inputs_for_plan(config: ReproduceConfig) -> Iterator[Path]:
    """The generated inputs, in a temporary folder unless they are there."""
    folder = Path(config.output) / INPUTS
    if config.scale != "tiny" or folder.is_dir():
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield write_inputs(Path(temporary) / INPUTS)
