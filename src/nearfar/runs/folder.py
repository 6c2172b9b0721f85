"""The folder of a run: a lock for one process at a time, and checks of settings and data when a run resumes.

``inputs.json`` holds a fingerprint of everything that the run reads, and its precision. It is written before the first
step; ``run.json``, written at the end, replaces it. Files are written in an order that is safe against a kill at any
moment: the folder then holds either no run (:data:`LEFTOVERS` at most) or a run that can resume.
"""

import json
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from nearfar.config import RunConfig, build, flag, load_toml
from nearfar.disk import LOCK, create_folder, disk_errors, flush_entries, folder_lock, remove, write_text
from nearfar.runs.records import (
    CONFIG,
    HELD_OUT,
    HELD_OUT_FILES,
    INPUTS,
    PRECISION,
    RUN_INFO,
    SECOND,
    read_input_fingerprints,
)
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.training.processes import Processes

LEFTOVERS = frozenset({LOCK, INPUTS, SECOND, *(f"{name}.new" for name in (CONFIG, INPUTS, SECOND))})
"""Files that a run may leave if it is killed before config.toml is written, beside those in ``held_out/``."""
_FREE = ("output", "track")
"""Settings that may differ when a run resumes: they do not change its result."""
State: TypeAlias = Literal["fresh", "unfinished", "finished"]
FindDifferences: TypeAlias = Callable[[Path], list[str]]
"""Returns the names of settings that differ from those in a run folder, other than the settings in config.toml."""


def no_differences(_: Path) -> list[str]:
    """The default: all settings are in config.toml, so nothing else can differ."""
    return []


class RunFolder(ExitStack):
    """The folder ``config.output`` while a run uses it. A context manager that releases the folder's lock at its end.

    Args:
        config: the run's config.
        processes: the processes that train together; the first one reads and writes.
        find_differences: finds settings that differ and are not in config.toml.
    """

    def __init__(
        self,
        config: RunConfig,
        processes: "Processes",
        *,
        find_differences: FindDifferences = no_differences,
    ) -> None:
        super().__init__()
        self.path = Path(config.output)
        self.inputs: dict[str, str] = {}
        """Fingerprint of each input verified so far."""
        self.resumes = False
        """Whether the folder holds the run already."""
        self._config, self._processes, self._find_differences = config, processes, find_differences
        self._before: dict[str, str] | None = None
        self._locked = False

    def acquire(self, *, resume: bool) -> State:
        """Lock the folder and return its state: ``fresh``, or this run ``unfinished`` or ``finished``.

        Raises:
            NearfarError: it holds something else, ``resume`` does not match its state, or another process uses it.
        """
        return self._processes.broadcast_from_first(partial(self._acquire, resume))

    def _acquire(self, resume: bool) -> State:
        if self.path.is_dir():
            self._lock()
        state = self._check(resume=resume)
        if state == "finished":
            self._remove_leftovers()
        if state == "unfinished":
            self._check_parts()
            self.resumes = True
            self._before = read_input_fingerprints(self.path)
            if self._before is None:
                warnings.warn(
                    f"{self.path}: this run has no {INPUTS}, because an earlier nearfar started it; it is not "
                    "checked whether data and model are still the same.",
                    stacklevel=2,
                )
        return state

    def verify_input(self, what: str, fingerprint: Callable[[], str]) -> None:
        """Record an input and compare it with the one that the run started with, and with that of other processes.

        Raises:
            NearfarError: the input has changed, or differs between the processes.
        """
        found = fingerprint()
        self._processes.agree(what, found)
        self._processes.broadcast_from_first(partial(self._verify_input, what, found))

    def _verify_input(self, what: str, fingerprint: str) -> None:
        self.inputs[what] = fingerprint
        if self._before is None or self._before.get(what) == self.inputs[what]:
            return
        again = f"choose another --output, or remove {self.path}."
        if what not in self._before:
            raise NearfarError(f"{self.path / INPUTS}: is damaged: it has no entry for {what}. Start again: {again}")
        raise NearfarError(f"{self.path}: {what} changed since this run started. Restore it; or start again: {again}")

    def begin(self, settings: Mapping[str, str]) -> None:
        """Write the files that define the run: its inputs, then ``settings`` (file name -> text), config.toml last.

        Raises:
            NearfarError: a file cannot be written; another process started a run here first.
        """
        self._processes.broadcast_from_first(partial(self._begin, settings))

    def _begin(self, settings: Mapping[str, str]) -> None:
        if not self._locked:
            self._lock()
            self._check(resume=False)
        with disk_errors(self.path):
            create_folder(self.path)
            for name in settings:
                create_folder((self.path / name).parent)
        write_text(self.path / INPUTS, json.dumps(self.inputs, indent=1, ensure_ascii=False) + "\n")
        for name in sorted(settings, key=lambda name: name == CONFIG):
            write_text(self.path / name, settings[name])

    def finish(self) -> None:
        """Remove ``inputs.json``; ``run.json`` of the finished run holds the same fingerprints.

        Raises:
            NearfarError: it cannot be deleted.
        """
        remove(self.path / INPUTS)
        with suppress(OSError):
            flush_entries(self.path)  # the files that only an unfinished run needs are gone for good

    def _check(self, *, resume: bool) -> State:
        return check_folder(self._config, resume=resume, find_differences=self._find_differences)

    def _lock(self) -> None:
        self.enter_context(folder_lock(self.path))
        self._locked = True

    def _remove_leftovers(self) -> None:
        """Remove what a run needs while it trains, if the process ended after the run was finished, but before this."""
        from nearfar.training.checkpoint import Checkpoints

        Checkpoints(self.path).clear()
        self.finish()

    def _check_parts(self) -> None:
        from nearfar.training.checkpoint import Checkpoints
        from nearfar.training.display import lines_up_to_step

        Checkpoints(self.path).check(best=self._config.keep == "best", average=self._config.ema is not None)
        lines_up_to_step(self.path / "metrics.jsonl", up_to=0)


def check_folder(
    config: RunConfig,
    *,
    resume: bool,
    find_differences: FindDifferences = no_differences,
) -> State:
    """The state of a run folder: ``fresh``, or this run ``unfinished`` or ``finished``.

    Raises:
        NearfarError: it holds something else; it holds a run and ``resume`` is not set; it holds none and it is.
    """
    folder = Path(config.output)
    if not (folder / CONFIG).exists():
        if resume and not folder.exists():
            raise NearfarError(f"{folder}: there is no run to resume.")
        if folder.exists() and not is_empty(folder):
            raise NearfarError(f"{folder}: already exists and holds no run (no {CONFIG}); choose another --output.")
        return "fresh"
    refuse_other_settings(folder, config, find_differences=find_differences)
    if (folder / RUN_INFO).exists():
        if not resume:
            raise NearfarError(
                f"{folder}: already holds this run, and it is finished; its model is {folder / 'model'}."
            )
        return "finished"
    if not resume:
        raise NearfarError(
            f"{folder}: already holds this run, unfinished. Continue it with --resume, or remove the folder."
        )
    return "unfinished"


def is_empty(folder: Path) -> bool:
    """Whether this is a folder in which no run was started."""
    return folder.is_dir() and all(_is_leftover(entry) for entry in folder.iterdir())


def _is_leftover(entry: Path) -> bool:
    if entry.name == HELD_OUT and entry.is_dir():
        return all(part.name.removesuffix(".new") in HELD_OUT_FILES for part in entry.iterdir())
    return entry.name in LEFTOVERS


def refuse_other_settings(
    folder: Path, config: RunConfig, *, find_differences: FindDifferences = no_differences
) -> None:
    """Check that the run in ``folder`` has the settings of ``config``.

    Raises:
        NearfarError: some settings differ; the message names them.
    """
    differ = differing_settings(folder, config)
    if "method" in differ:
        raise NearfarError(f"{folder}: holds a run of another method; choose another --output.")
    differ += find_differences(folder)
    if differ:
        raise NearfarError(
            f"{folder}: holds a run with other settings ({', '.join(map(flag, differ))}); choose another --output."
        )


def differing_settings(folder: Path, config: RunConfig) -> list[str]:
    """The settings, other than ``output`` and ``track``, in which the run in ``folder`` and the config differ."""
    file = folder / CONFIG
    kind, values = load_toml(file)
    before, now = asdict(build(kind, values, source=file)), asdict(config)
    if now[PRECISION] == "auto" and PRECISION not in (read_input_fingerprints(file.parent) or {}):
        now[PRECISION] = before[PRECISION]  # an earlier version, without auto, started it
    differ = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key) and key not in _FREE)
    return differ if kind is type(config) else ["method", *differ]
