"""A training callback that sends metrics and settings to the trackers of ``--track``.

``tracking/state.json`` in the run folder has, for each tracker, the last step that was sent and the tracker's own name
of the run. A run that resumes repeats the steps after its checkpoint with the same values; those that were sent before
are not sent again, so no step is recorded twice. The state is written *before* a step is sent: if the process is killed
between the two, the record lacks this step, and ``metrics.jsonl`` has it.
"""

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nearfar.disk import new_file
from nearfar.training.loop import Evaluation, StepReport
from nearfar.training.trackers import OpenTracker, open_tracker
from nearfar.types import Tracker

FOLDER, STATE = "tracking", "state.json"
_UNUSUAL = re.compile(r"[^-/\w.]")
"""Characters that a tracker does not allow in the name of a metric, as the ``@`` of mrr@10."""


class Tracking:
    """Records each step as one entry: ``train/...`` of the step, and ``dev/...`` if it is evaluated.

    An entry is sent when the next step begins, or by :meth:`close`. An error of a tracker never ends the run: it is
    shown once as a warning, and this tracker gets nothing more.

    Args:
        trackers: the trackers, each of which is started here.
        run_folder: the run folder; files are written to its folder ``tracking/``.
        settings: the settings of the run, recorded as hyper-parameters when a tracker is used for the first time.
        metric: the name of the dev score.
    """

    def __init__(
        self, trackers: Sequence[Tracker], run_folder: Path, *, settings: Mapping[str, Any], metric: str = "spearman"
    ) -> None:
        self._folder, self._metric = run_folder / FOLDER, metric
        self._state = _read_state(self._folder / STATE)
        self._open: dict[Tracker, OpenTracker] = {}
        self._entry: tuple[int, dict[str, float]] | None = None
        for name in dict.fromkeys(trackers):
            with self._guard(name):
                self._start(name, run_folder, settings)

    def on_step(self, report: StepReport) -> None:
        """Begin the entry of this step, and send the one before."""
        values = {**report.terms, "learning_rate": report.learning_rate, "gradient_norm": report.gradient_norm}
        values |= {"items_per_second": report.items_per_second, "epoch": report.epoch}
        self._add(report.step, {f"train/{name}": value for name, value in values.items()})

    def on_evaluate(self, step: int, evaluation: Evaluation, *, best: bool) -> None:  # noqa: ARG002
        """Add the score and the further measures to the entry of this step."""
        scored = {} if evaluation.score is None else {self._metric: evaluation.score}
        self._add(step, {f"dev/{name}": value for name, value in {**evaluation.measures, **scored}.items()})

    def close(self) -> None:
        """Send the last entry and end the records."""
        self._send()
        for name in list(self._open):
            with self._guard(name):
                self._open.pop(name).recorder.finish()

    def _start(self, name: Tracker, run_folder: Path, settings: Mapping[str, Any]) -> None:
        known = self._state.get(name)
        run = None if known is None else known.get("run")
        opened = open_tracker(name, self._folder, title=run_folder.resolve().name, run=run)
        self._open[name] = opened
        if known is None:
            self._state[name] = {"step": -1, "run": opened.run}
            self._write_state()
            opened.recorder.store_init_configuration(_flat(settings))

    def _add(self, step: int, values: Mapping[str, float]) -> None:
        if self._entry is not None and self._entry[0] != step:
            self._send()
        named = {_UNUSUAL.sub("_", name): float(value) for name, value in values.items()}
        self._entry = (step, {**(self._entry[1] if self._entry else {}), **named})

    def _send(self) -> None:
        if self._entry is None:
            return
        (step, values), self._entry = self._entry, None
        receivers = [name for name in self._open if self._state[name]["step"] < step]
        for name in receivers:
            self._state[name]["step"] = step
        for name in receivers:
            with self._guard(name):
                self._write_state()
                self._open[name].recorder.log(values, step=step, **({"commit": True} if name == "wandb" else {}))

    @contextmanager
    def _guard(self, name: Tracker) -> Iterator[None]:
        """Turn an error of a tracker into a warning, and leave the tracker out from then on."""
        try:
            yield
        except Exception as error:
            self._open.pop(name, None)
            reason = " ".join(str(error).split()) or type(error).__name__
            warnings.warn(
                f"--track {name}: stopped recording ({reason[:200]}). Training goes on; metrics.jsonl has all values.",
                stacklevel=2,
            )

    def _write_state(self) -> None:
        """Replace the file without waiting for the disk: it must survive a kill, and is written in every step."""
        with new_file(self._folder / STATE, durable=False) as file:
            file.write_text(json.dumps(self._state), encoding="utf-8")


def _read_state(file: Path) -> dict[str, dict[str, Any]]:
    """The state of each tracker; empty if there is none, or if a power cut damaged it: then records begin anew."""
    with suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
        found = json.loads(file.read_text(encoding="utf-8"))
        return {
            str(name): {"step": int(state["step"]), "run": None if state["run"] is None else str(state["run"])}
            for name, state in found.items()
        }
    return {}


def _flat(settings: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """The settings as trackers take them: lists as text, and without those that are not set."""
    return {
        name: " ".join(map(str, value)) if isinstance(value, tuple | list) else value
        for name, value in settings.items()
        if value is not None
    }
