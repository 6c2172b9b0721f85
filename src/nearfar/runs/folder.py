"""The folder of a run: its files, a lock for one process at a time, and checks of settings and data on resuming.

``inputs.json`` holds a fingerprint of everything that the run reads, and its precision. It is written before the first
step; ``run.json``, written at the end, replaces it. Files are written in an order that is safe against a kill at any
moment: the folder then holds either no run (:data:`LEFTOVERS` at most) or a run that can resume.
"""

import json
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from nearfar.config.training import RunConfig
from nearfar.config.values import flag
from nearfar.disk import create_folder, disk_errors, flush_entries, read_json, remove, write_text
from nearfar.disk.folders import folder_lock
from nearfar.encoder.precision import RECORDED_PRECISIONS, precision_record, resolve, resumed_precision
from nearfar.settings import build, dump_toml, load_toml
from nearfar.types import NearfarError, Precision, Resolved
from nearfar.validation import convert

if TYPE_CHECKING:
    from nearfar.training.processes import Processes

CONFIG, INPUTS, RUN_INFO = "config.toml", "inputs.json", "run.json"
HELD_OUT, HELD_OUT_SUMMARY = "held_out", "held_out.json"
"""The folder of held-out rows, and the last of the files that are written there before the first step; see
:mod:`nearfar.runs.held_out`."""
TEACHERS = "teachers"
"""The folder of the vectors that teachers give to the training texts; it is there while the run is unfinished."""
PRECISION = "precision"
"""Key of the precision among the inputs; see :meth:`RunFolder.resolve_precision`."""
LEFTOVERS = frozenset({INPUTS, HELD_OUT, *(f"{name}.new" for name in (CONFIG, INPUTS))})
"""What a run may leave if it is killed before config.toml is written."""
_FREE = ("output", "track")
"""Settings that may differ when a run resumes: they do not change its result."""
State: TypeAlias = Literal["fresh", "unfinished", "finished"]


class RunFolder(ExitStack):
    """The folder ``config.output`` while a run uses it. A context manager that releases the folder's lock at its end.

    Args:
        config: the run's config.
        processes: the processes that train together; the first one reads and writes.
    """

    def __init__(self, config: RunConfig, processes: "Processes") -> None:
        super().__init__()
        self.path = Path(config.output)
        self.inputs: dict[str, str] = {}
        """Fingerprint of each input verified so far."""
        self.files = {CONFIG: dump_toml(config)}
        """The files that define the run, name -> text; see :meth:`begin`."""
        self._config, self._processes = config, processes
        self._before: dict[str, str] | None = None
        """The fingerprints that the run started with; None for a new run."""
        self._locked = False

    def acquire(self, *, resume: bool) -> State:
        """Lock the folder and return its state: ``fresh``, or this run ``unfinished`` or ``finished``.

        Raises:
            NearfarError: it holds something else, ``resume`` does not match its state, or another process uses it.
        """
        return self._processes.broadcast_from_first(partial(self._acquire, resume))

    def _acquire(self, resume: bool) -> State:
        from nearfar.training.callbacks import lines_up_to_step
        from nearfar.training.checkpoint import METRICS, Checkpoints

        if self.path.is_dir():
            self._lock()
        state = check_folder(self._config, resume=resume)
        if state == "finished":
            self.finish()  # the process may have ended between run.json and this
        if state == "unfinished":
            Checkpoints(self.path).check(best=self._config.keep == "best")
            lines_up_to_step(self.path / METRICS)
            self._before = read_input_fingerprints(self.path)
        return state

    def verify_input(self, what: str, fingerprint: Callable[[], str]) -> None:
        """Record an input and compare it with the one that the run started with, and with that of other processes.

        Raises:
            NearfarError: the input has changed, or differs between the processes.
        """
        self.inputs[what] = fingerprint()
        self._processes.agree(what, self.inputs[what])
        self._processes.broadcast_from_first(partial(self._compare_input, what))

    def _compare_input(self, what: str) -> None:
        if self._before is None or self._before.get(what) == self.inputs[what]:
            return
        raise NearfarError(
            f"{self.path}: {what} changed since this run started. Restore it; or else: {_start_again(self.path)}"
        )

    def resolve_precision(self, requested: Precision, device: str | None) -> Resolved:
        """The precision to compute in, the same in all processes. It is recorded among the inputs.

        A run that resumes keeps the recorded precision.

        Raises:
            NearfarError: the run started in native bfloat16, or the first process computes in it, and ``device`` does
                not have it; the record is damaged.
        """

        def record() -> str:
            if self._before is None:
                return precision_record(resolve(requested, device), device)
            recorded = self._before.get(PRECISION, "")
            if recorded not in RECORDED_PRECISIONS:
                raise NearfarError(f"{self.path / INPUTS}: is damaged: no {PRECISION}. {_start_again(self.path)}")
            return recorded

        with self._processes.joint_errors():
            recorded = self.inputs[PRECISION] = self._processes.broadcast_from_first(record)
            return resumed_precision(recorded, device, what=f"{self.path}: this run")

    def begin(self) -> None:
        """Write the inputs, and then the :attr:`files` that define the run, config.toml last.

        Raises:
            NearfarError: a file cannot be written; another process started a run here first.
        """
        self._processes.broadcast_from_first(self._begin)

    def _begin(self) -> None:
        if not self._locked:
            self._lock()
            check_folder(self._config, resume=False)
        with disk_errors(self.path):
            create_folder(self.path)
            for name in self.files:
                create_folder((self.path / name).parent)
        write_text(self.path / INPUTS, json.dumps(self.inputs, indent=1, ensure_ascii=False) + "\n")
        for name in sorted(self.files, key=lambda name: name == CONFIG):
            write_text(self.path / name, self.files[name])

    def finish(self) -> None:
        """Remove what a run needs while it trains. ``run.json`` holds the fingerprints of ``inputs.json`` too.

        Raises:
            NearfarError: a file cannot be deleted.
        """
        from nearfar.training.checkpoint import Checkpoints

        Checkpoints(self.path).clear()
        for name in (TEACHERS, INPUTS):
            remove(self.path / name)
        with suppress(OSError):
            flush_entries(self.path)  # the files that only an unfinished run needs are gone for good

    def _lock(self) -> None:
        self.enter_context(folder_lock(self.path))
        self._locked = True


def check_folder(config: RunConfig, *, resume: bool) -> State:
    """The state of a run folder: ``fresh``, or this run ``unfinished`` or ``finished``.

    Raises:
        NearfarError: it holds something else; it holds a run and ``resume`` is not set; it holds none and it is.
    """
    folder = Path(config.output)
    if not (folder / CONFIG).exists():
        if resume and not folder.exists():
            raise NearfarError(f"{folder}: there is no run to resume.")
        if folder.exists() and not (folder.is_dir() and {entry.name for entry in folder.iterdir()} <= LEFTOVERS):
            raise NearfarError(f"{folder}: already exists and holds no run (no {CONFIG}); choose another --output.")
        return "fresh"
    differ = differing_settings(folder, config)
    if "method" in differ:
        raise NearfarError(f"{folder}: holds a run of another method; choose another --output.")
    if differ:
        raise NearfarError(
            f"{folder}: holds a run with other settings ({', '.join(map(flag, differ))}); choose another --output."
        )
    finished = (folder / RUN_INFO).exists()
    if not resume:
        unfinished = "unfinished. Continue it with --resume, or remove the folder."
        state = f"and it is finished; its model is {folder / 'model'}." if finished else unfinished
        raise NearfarError(f"{folder}: already holds this run, {state}")
    return "finished" if finished else "unfinished"


def differing_settings(folder: Path, config: RunConfig) -> list[str]:
    """The settings, other than ``output`` and ``track``, in which the run in ``folder`` and the config differ."""
    kind, values = load_toml(folder / CONFIG)
    before, now = asdict(build(kind, values, source=folder / CONFIG)), asdict(config)
    differ = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key) and key not in _FREE)
    return differ if kind is type(config) else ["method", *differ]


def read_run_info(folder: Path) -> dict[str, Any]:
    """The run.json of a finished run, with its scores checked.

    Raises:
        NearfarError: it cannot be read, or is damaged.
    """
    file = folder / RUN_INFO
    again = f"Remove {folder} and train again, or restore the file."
    run_info = read_json(file, otherwise=again)
    config = run_info.get("config") if isinstance(run_info, dict) else None
    if not isinstance(config, dict) or type(config.get("seed")) is not int:
        raise NearfarError(f"{file}: is damaged: it has no config with the run's seed. {again}")
    for name in ("step", "best_step", "start_score", "best_score", "seconds"):
        if type(run_info.get(name, 0)) not in (int, float, type(None)):
            raise NearfarError(f"{file}: is damaged: {name} is not a number. {again}")
    return dict(run_info)


def read_input_fingerprints(folder: Path) -> dict[str, str]:
    """The fingerprints of an unfinished run's inputs, from ``inputs.json``.

    Raises:
        NearfarError: the file is missing or damaged.
    """
    file, again = folder / INPUTS, _start_again(folder)
    return convert(read_json(file, otherwise=again), dict[str, str], source=f"{file}: is damaged. {again}")


def _start_again(folder: Path) -> str:
    return f"Start again: choose another --output, or remove {folder}."
