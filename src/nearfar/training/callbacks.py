"""Training callbacks: they show progress on the console, write metrics.jsonl, and send metrics to trackers.

The trackers of ``--track`` (TensorBoard, W&B, MLflow) are accelerate's, with all files inside the run folder.
``tracking/state.json`` there has each tracker's own name of the run, by which a resumed run continues its record. That
run repeats the steps after its checkpoint with the same values; those in ``metrics.jsonl``, to which steps are written
after they are sent, are not sent again.
"""

import importlib
import importlib.util
import json
import math
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from nearfar.disk import disk_errors, read_text, write_text
from nearfar.runtime.progress import draws_bars
from nearfar.training import Evaluation, StepReport
from nearfar.training.checkpoint import METRICS
from nearfar.types import NearfarError, Tracker, metric_title

if TYPE_CHECKING:
    from accelerate.tracking import GeneralTracker

INSTALL: dict[Tracker, str] = {
    "tensorboard": "pip install 'nearfar[track]'",
    "wandb": "pip install wandb",
    "mlflow": "pip install mlflow",
}
PROJECT = "nearfar"
"""Name of the project (Weights & Biases) or experiment (MLflow), unless the environment names another."""
_MLFLOW_PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
"""Unless set otherwise: by default, each step would wait for minutes if the server cannot be reached."""
FOLDER, STATE = "tracking", "state.json"
_UNUSUAL = re.compile(r"[^-/\w.]")
"""Characters that a tracker does not allow in the name of a metric, as the ``@`` of mrr@10."""


class Display:
    """Shows loss terms, learning rate, items per second and remaining time in a progress bar.

    Without a terminal or a notebook it prints about twenty lines per run. ``bar`` is a context manager, inside which it
    is shown.
    """

    def __init__(self, console: Console, *, total_steps: int, start: int, metric: str, evaluated_on: str) -> None:
        self.console = console
        self.metric, self.evaluated_on = metric_title(metric), evaluated_on
        self.total_steps, self.every = total_steps, max(1, total_steps // 20)
        columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.description}"))
        self.bar = Progress(*columns, TimeRemainingColumn(), console=console, disable=not draws_bars(console))
        self.task = self.bar.add_task("starting", total=total_steps, completed=start)

    def on_step(self, report: StepReport) -> None:
        """Update the progress bar."""
        terms = "  ".join(f"{name} {value:.3f}" for name, value in report.terms.items())
        line = f"{terms}  lr {report.learning_rate:.1e}  {report.items_per_second:.0f} items/s"
        self.bar.update(self.task, completed=report.step, description=line)
        if not draws_bars(self.console) and report.step % self.every == 0:
            self.console.print(f"step {report.step} of {self.total_steps}: {line}", highlight=False)

    def on_evaluate(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        """Print the score and the further metrics."""
        note = "before training" if step == 0 else "best so far" if best else ""
        shown = f"{self.metric} {100 * evaluation.score:.2f} on" if evaluation.score is not None else "geometry of"
        self.bar.console.print(f"step {step}: {shown} {self.evaluated_on}  {note}".rstrip(), highlight=False)
        measures = "  ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in evaluation.measures.items())
        if measures:
            self.bar.console.print(f"  {measures}", highlight=False)


class MetricsFile:
    """``metrics.jsonl``: one JSON object per step or evaluation; lines after the step ``resume_at`` are removed.

    With ``resume_at`` 0, all lines are removed: a run that stopped before its first checkpoint starts again with the
    evaluation before training.
    """

    def __init__(self, file: Path, *, resume_at: int, metric: str = "spearman") -> None:
        self.file, self.metric = file, metric
        kept = lines_up_to_step(file, resume_at) if resume_at else []
        write_text(file, "".join(line + "\n" for line in kept))

    def on_step(self, report: StepReport) -> None:
        """Append a line for the step."""
        rounded = {name: round(value, 6) for name, value in report.terms.items()}
        self._append(
            {"step": report.step, "epoch": report.epoch, **rounded, "learning_rate": report.learning_rate}
            | {"gradient_norm": round(report.gradient_norm, 6), "items_per_second": round(report.items_per_second, 1)}
        )

    def on_evaluate(self, step: int, evaluation: Evaluation, *, best: bool) -> None:
        """Append a line for the evaluation."""
        rounded = {name: round(value, 6) for name, value in evaluation.measures.items()}
        scored = {} if evaluation.score is None else {self.metric: evaluation.score}
        self._append({"step": step, "metric": next(iter(scored), None), **scored, "best": best, **rounded})

    def _append(self, record: Mapping[str, object]) -> None:
        with disk_errors(self.file), self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")


def lines_up_to_step(file: Path, up_to: float = math.inf) -> list[str]:
    """The lines of a metrics.jsonl up to a step, without an incomplete last line; none if the file does not exist.

    Raises:
        NearfarError: the file cannot be read, or a line other than the last is damaged.
    """
    if not file.exists():
        return []
    lines = read_text(file).split("\n")
    kept = []
    for number, line in enumerate(lines, start=1):
        try:
            step = json.loads(line)["step"]
        except (ValueError, TypeError, KeyError, RecursionError):
            if number == len(lines):  # after the last line end: empty, or an incomplete line of a killed run
                continue
            step = None
        if type(step) is not int:
            raise NearfarError(f"{file}, line {number}: is damaged: no JSON object with a step. Remove this line.")
        if step <= up_to:
            kept.append(line)
    return kept


class Tracking:
    """Records each step, as ``train/...``, and each evaluation, as ``dev/...``.

    An error of a tracker never ends the run: it is shown once as a warning, and this tracker gets nothing more. Make it
    before :class:`MetricsFile`, which removes the lines that tell what was sent.

    Args:
        trackers: the trackers, each of which is started here.
        run_folder: the run folder; files are written to its folder ``tracking/``.
        settings: the settings of the run, recorded as hyper-parameters when a tracker is used for the first time.
        metric: the name of the dev score.
    """

    def __init__(
        self, trackers: Sequence[Tracker], run_folder: Path, *, settings: Mapping[str, Any], metric: str = "spearman"
    ) -> None:
        state = run_folder / FOLDER / STATE
        names: dict[str, str | None] = {}
        with suppress(OSError, msgspec.MsgspecError):  # none, or damaged by a power cut: records begin anew
            names = msgspec.json.decode(state.read_bytes(), type=dict[str, str | None])
        before = [json.loads(line) for line in lines_up_to_step(run_folder / METRICS)]
        sent = {("dev" if "best" in line else "train", line["step"]) for line in before}
        self._metric = metric
        self._recorders: dict[Tracker, GeneralTracker] = {}
        self._sent: dict[Tracker, set[tuple[str, int]]] = {}
        for name in dict.fromkeys(trackers):
            with self._guard(name):
                title = run_folder.resolve().name
                recorder, own_name = open_tracker(name, state.parent, title=title, run=names.get(name))
                self._recorders[name], self._sent[name] = recorder, sent if name in names else set()
                if name not in names:
                    names[name] = own_name
                    write_text(state, json.dumps(names))
                    recorder.store_init_configuration(_flat(settings))

    def on_step(self, report: StepReport) -> None:
        """Send what the step reports."""
        values = {**report.terms, "learning_rate": report.learning_rate, "gradient_norm": report.gradient_norm}
        values |= {"items_per_second": report.items_per_second, "epoch": report.epoch}
        self._send("train", report.step, values)

    def on_evaluate(self, step: int, evaluation: Evaluation, *, best: bool) -> None:  # noqa: ARG002
        """Send the score and the further measures."""
        scored = {} if evaluation.score is None else {self._metric: evaluation.score}
        self._send("dev", step, {**evaluation.measures, **scored})

    def close(self) -> None:
        """End the records."""
        for name in list(self._recorders):
            with self._guard(name):
                self._recorders.pop(name).finish()

    def _send(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        named = {_UNUSUAL.sub("_", f"{kind}/{name}"): float(value) for name, value in values.items()}
        for name in list(self._recorders):
            if (kind, step) not in self._sent[name]:
                with self._guard(name):
                    self._recorders[name].log(named, step=step)

    @contextmanager
    def _guard(self, name: Tracker) -> Iterator[None]:
        """Turn an error of a tracker into a warning, and leave the tracker out from then on."""
        try:
            yield
        except Exception as error:
            self._recorders.pop(name, None)
            reason = " ".join(str(error).split()) or type(error).__name__
            warnings.warn(
                f"--track {name}: stopped recording ({reason[:200]}). Training goes on; metrics.jsonl has all values.",
                stacklevel=2,
            )


def _flat(settings: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """The settings as trackers take them: lists as text, and without those that are not set."""
    return {
        name: " ".join(map(str, value)) if isinstance(value, tuple | list) else value
        for name, value in settings.items()
        if value is not None
    }


def check_installed(trackers: Sequence[Tracker]) -> None:
    """Check that the packages of these trackers are installed.

    Raises:
        NearfarError: one is not; the message says how to install it.
    """
    for name in trackers:
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:  # a folder of this name, such as wandb's own, is no package
            raise NearfarError(f"--track {name}: needs the package {name}; install with: {INSTALL[name]}")


def open_tracker(name: Tracker, folder: Path, *, title: str, run: str | None) -> "tuple[GeneralTracker, str | None]":
    """Start a tracker that writes below ``folder``; its own name of the run, None if the folder is enough, is returned.

    Args:
        name: the tracker.
        folder: the folder ``tracking/`` of the run.
        title: the name of the run that the tracker shows.
        run: the tracker's own name of the run, to continue its record; None for a new record.

    Raises:
        Exception: whatever the tracker raises.
    """
    from accelerate import tracking

    folder.mkdir(exist_ok=True)
    recorder: Any
    if name == "tensorboard":  # which names a run by its folder
        recorder = tracking.TensorBoardTracker("tensorboard", folder)
    elif name == "wandb":
        run, project = run or uuid4().hex[:12], os.environ.get("WANDB_PROJECT", PROJECT)
        quiet = {"console": "off"}
        recorder = tracking.WandBTracker(project, name=title, id=run, resume="allow", dir=str(folder), settings=quiet)
    else:
        for variable, value in _MLFLOW_PATIENCE.items():
            os.environ.setdefault(variable, value)
        artifacts = None
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            database = f"sqlite:///{(folder / 'mlflow.db').resolve().as_posix()}"
            importlib.import_module("mlflow").set_tracking_uri(database)
            artifacts = (folder / "artifacts").resolve().as_uri()
        recorder = tracking.MLflowTracker(PROJECT, logging_dir=artifacts, run_id=run, run_name=title)
    recorder.start()
    if name == "mlflow":
        run = str(recorder.active_run.info.run_id)
    return recorder, None if name == "tensorboard" else run
