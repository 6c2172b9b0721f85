"""Opens TensorBoard, Weights & Biases and MLflow by accelerate's trackers, with all files inside a run folder."""

import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from nearfar.types import NearfarError, Tracker

INSTALL: dict[Tracker, str] = {
    "tensorboard": "pip install 'nearfar[track]'",
    "wandb": "pip install wandb",
    "mlflow": "pip install mlflow",
}
PROJECT = "nearfar"
"""Name of the project (Weights & Biases) or experiment (MLflow), unless the environment names another."""
_MLFLOW_PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
"""Unless set otherwise: by default, each step would wait for minutes if the server cannot be reached."""


class Recorder(Protocol):
    """The part of accelerate's trackers that is used."""

    def start(self) -> None: ...  # noqa: D102
    def store_init_configuration(self, values: dict[str, Any]) -> None: ...  # noqa: D102
    def log(self, values: dict[str, float], step: int | None = None, **kwargs: Any) -> None: ...  # noqa: D102
    def finish(self) -> None: ...  # noqa: D102


class OpenTracker(NamedTuple):
    """A tracker that is ready to record."""

    recorder: Recorder
    run: str | None
    """The tracker's own name of the run, by which the record is continued; None if its folder is enough."""


def check_installed(trackers: Sequence[Tracker]) -> None:
    """Check that the packages of these trackers are installed.

    Raises:
        NearfarError: one is not; the message says how to install it.
    """
    for name in trackers:
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:  # a folder of this name, such as wandb's own, is no package
            raise NearfarError(f"--track {name}: needs the package {name}; install with: {INSTALL[name]}")


def open_tracker(name: Tracker, folder: Path, *, title: str, run: str | None) -> OpenTracker:
    """Start a tracker that writes below ``folder``.

    Args:
        name: the tracker.
        folder: the folder ``tracking/`` of the run.
        title: the name of the run that the tracker shows.
        run: the tracker's own name of the run, to continue its record; None for a new record.

    Raises:
        Exception: whatever the tracker raises.
    """
    folder.mkdir(exist_ok=True)
    return _OPEN[name](folder, title, run)


def _tensorboard(folder: Path, title: str, run: str | None) -> OpenTracker:
    from accelerate.tracking import TensorBoardTracker

    del title, run  # TensorBoard names a run by its folder
    recorder = TensorBoardTracker("tensorboard", folder)
    recorder.start()
    return OpenTracker(recorder, None)


def _wandb(folder: Path, title: str, run: str | None) -> OpenTracker:
    from accelerate.tracking import WandBTracker

    run = run or uuid4().hex[:12]
    project = os.environ.get("WANDB_PROJECT", PROJECT)
    recorder = WandBTracker(project, name=title, id=run, resume="allow", dir=str(folder), settings={"console": "off"})
    recorder.start()
    return OpenTracker(recorder, run)


def _mlflow(folder: Path, title: str, run: str | None) -> OpenTracker:
    from accelerate.tracking import MLflowTracker

    for name, value in _MLFLOW_PATIENCE.items():
        os.environ.setdefault(name, value)
    artifacts = None
    if not os.environ.get("MLFLOW_TRACKING_URI"):
        importlib.import_module("mlflow").set_tracking_uri(f"sqlite:///{(folder / 'mlflow.db').resolve().as_posix()}")
        artifacts = (folder / "artifacts").resolve().as_uri()
    recorder = MLflowTracker(PROJECT, logging_dir=artifacts, run_id=run, run_name=title)
    recorder.start()
    return OpenTracker(recorder, str(recorder.active_run.info.run_id))


_OPEN: Mapping[Tracker, Callable[[Path, str, str | None], OpenTracker]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}
