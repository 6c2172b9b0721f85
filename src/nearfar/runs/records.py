"""Reads the files that describe a run: ``run.json`` of a finished run and the fingerprints of its inputs."""

from pathlib import Path
from typing import Any

from nearfar.disk import read_json
from nearfar.types import NearfarError

CONFIG, SECOND, INPUTS, RUN_INFO = "config.toml", "second.toml", "inputs.json", "run.json"
HELD_OUT, HELD_OUT_SUMMARY, HELD_OUT_ROWS, HELD_OUT_TRAINING = "held_out", "held_out.json", "rows.tsv", "training.tsv"
HELD_OUT_FILES = frozenset({HELD_OUT_SUMMARY, HELD_OUT_ROWS, HELD_OUT_TRAINING})
"""The folder of held-out rows, and the files that are written there before the first step; see
:mod:`nearfar.runs.held_out`."""
PRECISION = "precision"
"""Key of the precision among the inputs; see :meth:`nearfar.runs.folder.RunFolder.resolve_precision`."""


def read_run_info(folder: Path) -> dict[str, Any]:
    """The run.json of a finished run, with its scores checked.

    Raises:
        NearfarError: it cannot be read, or is damaged.
    """
    file = folder / RUN_INFO
    again = f"Remove {folder} and train again, or restore the file."
    run_info = read_json(file, otherwise=again)
    numbers = ("step", "best_step", "start_score", "best_score", "seconds")
    config = run_info.get("config") if isinstance(run_info, dict) else None
    if not isinstance(config, dict) or type(config.get("seed")) is not int:
        raise NearfarError(f"{file}: is damaged: it has no config with the run's seed. {again}")
    for name in numbers:
        if type(run_info.get(name, 0)) not in (int, float, type(None)):
            raise NearfarError(f"{file}: is damaged: {name} is not a number. {again}")
    return dict(run_info)


def read_input_fingerprints(folder: Path) -> dict[str, str]:
    """The fingerprints of an unfinished run's inputs, from ``inputs.json``.

    Raises:
        NearfarError: the file is missing or damaged.
    """
    file = folder / INPUTS
    again = f"Start again: choose another --output, or remove {folder}."
    inputs = read_json(file, otherwise=again)
    if not isinstance(inputs, dict) or not all(isinstance(value, str) for value in inputs.values()):
        raise NearfarError(f"{file}: is damaged: the inputs are not an object of fingerprints. {again}")
    return inputs
