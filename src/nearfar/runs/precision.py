"""The precision of a run: what its folder, or its group, began with; else what its config asks for on this device."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.config import RunConfig, load_toml
from nearfar.encoder.precision import NOTES, kept, note, resolve
from nearfar.runs.folder import CONFIG, INPUTS, PRECISION, RunFolder, inputs_of
from nearfar.types import NearfarError, Resolved

if TYPE_CHECKING:
    from nearfar.training.processes import Processes


def precision_of(config: RunConfig, held: RunFolder, processes: "Processes", device: str | None) -> Resolved:
    """What to compute in, noted among the inputs of the folder that is held; all processes compute in the same.

    Raises:
        NearfarError: the run began in native bfloat16, which ``device`` does not have; the note of it is damaged.
    """
    begun, precision = processes.from_first(partial(_settled, config, held, device))
    held.inputs[PRECISION] = begun
    return precision


def _settled(config: RunConfig, held: RunFolder, device: str | None) -> tuple[str, Resolved]:
    for folder in held.begun:
        begun = _noted(folder)
        if begun is not None:
            what = "this run" if folder == held.path else "this run of the same group"
            return begun, kept(begun, device, what=f"{folder}: {what}")
    precision = resolve(config.precision, device)
    return note(precision, device), precision


def _noted(folder: Path) -> str | None:
    """The note in a run's folder; of an earlier version what its settings ask for, unless that is auto."""
    begun = (inputs_of(folder) or {}).get(PRECISION)
    if begun is None:
        asked = str(load_toml(folder / CONFIG)[1].get(PRECISION, "auto"))
        return None if asked == "auto" else asked
    if begun not in NOTES:
        raise NearfarError(
            f"{folder / INPUTS}: is damaged: the precision is none of {', '.join(NOTES)}. Start again: choose another "
            f"--output, or remove {folder}."
        )
    return begun
