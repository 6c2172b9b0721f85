"""Find the model folder inside a run folder."""

from pathlib import Path

from nearfar.disk.checks import path_errors
from nearfar.types import NearfarError

CARD_MARK = "<!-- model card by nearfar -->"
"""A comment in every model card (README.md) that nearfar writes."""


@path_errors()
def model_of_run(folder: Path) -> Path:
    """Return the model folder of a finished run; any other folder is returned unchanged.

    Raises:
        NearfarError: the folder is an unfinished run, a run whose model is missing, or a job of a study, which has the
            run folder inside.
    """
    if any((folder / name).is_file() for name in ("config.json", "modules.json")):
        return folder
    if (folder / "run.json").is_file():
        if not (folder / "model").is_dir():
            raise NearfarError(f"{folder}: is a finished run, but its folder model is missing; train it again.")
        return folder / "model"
    if (folder / "job.json").is_file() and (folder / "run" / "run.json").is_file():
        raise NearfarError(f"{folder}: is the folder of a job of a study; name its run folder, {folder / 'run'}.")
    if (folder / "config.toml").is_file() and any(
        (folder / name).exists() for name in ("inputs.json", "metrics.jsonl")
    ):
        raise NearfarError(f"{folder}: is a run that is not finished (no run.json); finish it by --resume.")
    return folder
