"""The precision of a run: what its folder, or its group, began with; else what its config asks for on this device."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.config import RunConfig, load_toml
from nearfar.encoder.precision import RECORDED_PRECISIONS, resumed_precision, precision_record, resolve
from nearfar.runs.folder import CONFIG, INPUTS, PRECISION, RunFolder, read_input_fingerprints
from nearfar.types import NearfarError, Resolved

if TYPE_CHECKING:
    from nearfar.training.processes import Processes


def resolve_run_precision(
    config: RunConfig, run_dir: RunFolder, processes: "Processes", device: str | None
) -> Resolved:
    """What to compute in, noted among the inputs of the folder that is held; all processes compute in the same.

    Raises:
        NearfarError: the run began in native bfloat16, which ``device`` does not have; the note of it is damaged.
    """
    begun, precision = processes.broadcast_from_first(partial(_resolve_precision, config, run_dir, device))
    run_dir.inputs[PRECISION] = begun
    return precision


def _resolve_precision(config: RunConfig, run_dir: RunFolder, device: str | None) -> tuple[str, Resolved]:
    for folder in run_dir.existing_runs:
        begun = _recorded_precision(folder)
        if begun is not None:
            what = "this run" if folder == run_dir.path else "this run of the same group"
            return begun, resumed_precision(begun, device, what=f"{folder}: {what}")
    precision = resolve(config.precision, device)
    return precision_record(precision, device), precision


def _recorded_precision(folder: Path) -> str | None:
    """The note in a run's folder; of an earlier version what its settings ask for, unless that is auto."""
    begun = (read_input_fingerprints(folder) or {}).get(PRECISION)
    if begun is None:
        asked = str(load_toml(folder / CONFIG)[1].get(PRECISION, "auto"))
        return None if asked == "auto" else asked
    if begun not in RECORDED_PRECISIONS:
        raise NearfarError(
            f"{folder / INPUTS}: is damaged: the precision is none of {', '.join(RECORDED_PRECISIONS)}. Start again: choose another "
            f"--output, or remove {folder}."
        )
    return begun
