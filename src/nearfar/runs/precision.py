"""Resolves the precision of a run: the recorded one when it resumes, else the one its config asks for."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.config import RunConfig, load_toml
from nearfar.encoder.precision import RECORDED_PRECISIONS, is_native, precision_record, resolve, resumed_precision
from nearfar.runs.folder import RunFolder
from nearfar.runs.records import CONFIG, INPUTS, PRECISION, read_input_fingerprints
from nearfar.types import NearfarError, Resolved

if TYPE_CHECKING:
    from nearfar.training.processes import Processes


def resolve_run_precision(
    config: RunConfig, run_dir: RunFolder, processes: "Processes", device: str | None
) -> Resolved:
    """The precision to compute in. It is recorded among the inputs of ``run_dir`` and is the same in all processes.

    A run that resumes keeps the recorded precision.

    Raises:
        NearfarError: the run started in native bfloat16, or the first process computes in it, and ``device`` does not
            have it; the record is damaged.
    """
    with processes.joint_errors():
        recorded, precision = processes.broadcast_from_first(partial(_resolve_precision, config, run_dir, device))
        if recorded == "bf16" and not is_native(device):
            raise NearfarError(
                "the processor does not compute bf16 natively, as that of the first process does. Give --precision "
                "fp32, or use equal machines."
            )
    run_dir.inputs[PRECISION] = recorded
    return precision


def recorded_run_precision(folder: Path, device: str | None) -> tuple[str, Resolved] | None:
    """The record in a run folder, and the precision in which the run resumes; None if nothing is recorded.

    Raises:
        NearfarError: the run started in native bfloat16, which ``device`` does not have; the record is damaged.
    """
    recorded = _recorded_precision(folder)
    return None if recorded is None else (recorded, resumed_precision(recorded, device, what=f"{folder}: this run"))


def _resolve_precision(config: RunConfig, run_dir: RunFolder, device: str | None) -> tuple[str, Resolved]:
    if run_dir.resumes and (found := recorded_run_precision(run_dir.path, device)) is not None:
        return found
    precision = resolve(config.precision, device)
    return precision_record(precision, device), precision


def _recorded_precision(folder: Path) -> str | None:
    """The precision recorded in a run folder.

    A run of an earlier version has no record; its config.toml says the precision unless that is auto.
    """
    recorded = (read_input_fingerprints(folder) or {}).get(PRECISION)
    if recorded is None:
        configured = str(load_toml(folder / CONFIG)[1].get(PRECISION, "auto"))
        return None if configured == "auto" else configured
    if recorded not in RECORDED_PRECISIONS:
        raise NearfarError(
            f"{folder / INPUTS}: is damaged: the precision is none of {', '.join(RECORDED_PRECISIONS)}. "
            f"Start again: choose another --output, or remove {folder}."
        )
    return recorded
