"""The folder of a run: one process at a time, the same settings, and the same data when the run goes on.

``inputs.json`` holds a fingerprint of everything that the run reads, and its precision, from before its first step
until ``run.json``, written at the end, holds them too. Files are written in an order in which a kill at any moment
leaves either nothing that counts as a run (:data:`LEFTOVERS`) or a run that can go on.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from nearfar.config import RunConfig, build, flag, load_toml
from nearfar.disk import LOCK, disk_errors, folder_lock, read_json, write_text
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.training.processes import Processes

CONFIG, INPUTS, RUN_INFO = "config.toml", "inputs.json", "run.json"
PRECISION = "precision"
"""What the run computes in is among the inputs (:mod:`nearfar.runs.precision`)."""
LEFTOVERS = frozenset({LOCK, INPUTS, "second.toml", *(f"{name}.new" for name in (CONFIG, INPUTS, "second.toml"))})
"""What a run that was killed before it had its config.toml may have left."""
State: TypeAlias = Literal["fresh", "unfinished", "finished"]
FindDifferences: TypeAlias = Callable[[Path], list[str]]
"""What differs in a folder, beside the settings in config.toml."""


def no_differences(_: Path) -> list[str]:
    """All settings are in config.toml."""
    return []


class RunFolder(ExitStack):
    """The folder ``config.output`` while a run works in it; a context manager, at whose end other processes may enter.

    Args:
        config: of the run.
        processes: that train together; the first one reads and writes.
        find_differences: says what else differs.
        sibling_runs: folders of runs that must have had the same inputs, where they know them.
        info_file: the file that a finished run has.
        what: the word for it in messages.
    """

    def __init__(
        self,
        config: RunConfig,
        processes: "Processes",
        *,
        find_differences: FindDifferences = no_differences,
        sibling_runs: Sequence[Path] = (),
        info_file: str = RUN_INFO,
        what: str = "run",
    ) -> None:
        super().__init__()
        self.path = Path(config.output)
        self.inputs: dict[str, str] = {}
        """Fingerprint of each input that was seen."""
        self.existing_runs: list[Path] = []
        """This folder, where it holds the run already, then those of ``sibling_runs`` that hold one."""
        self._config, self._processes, self._find_differences = config, processes, find_differences
        self._info_file, self._what = info_file, what
        self._sibling_runs = sibling_runs
        self._before: list[tuple[Path, dict[str, str]]] = []
        self._locked = False

    def acquire(self, *, resume: bool) -> State:
        """Whether the folder is free, or holds this run, unfinished or finished.

        Raises:
            NearfarError: it holds something else, ``resume`` does not fit, or another process is in it.
        """
        return self._processes.broadcast_from_first(partial(self._acquire, resume))

    def _acquire(self, resume: bool) -> State:
        if self.path.is_dir():
            self._lock()
        state = self._check(resume=resume)
        if state == "unfinished" or (state == "finished" and self._info_file != RUN_INFO):
            self._check_parts()
            self.existing_runs.append(self.path)
            before = read_input_fingerprints(self.path)
            if before is not None:
                self._before.append((self.path, before))
            elif state == "unfinished":
                warnings.warn(
                    f"{self.path}: this run has no {INPUTS}, as an earlier version of nearfar began it; whether data "
                    "and model are still the same is not checked.",
                    stacklevel=2,
                )
        for folder in self._sibling_runs:
            if state != "finished" and (known := read_input_fingerprints(folder)) is not None:
                self._before.append((folder, known))
        self.existing_runs += [folder for folder in self._sibling_runs if (folder / CONFIG).is_file()]
        return state

    def verify_input(self, what: str, fingerprint: Callable[[], str]) -> None:
        """Take note of an input, and hold it against what the run began with. All processes see the same inputs.

        Raises:
            NearfarError: it is another now.
        """
        self._processes.broadcast_from_first(partial(self._verify_input, what, fingerprint))

    def _verify_input(self, what: str, fingerprint: Callable[[], str]) -> None:
        self.inputs[what] = fingerprint()
        for folder, before in self._before:
            if before.get(what) == self.inputs[what]:
                continue
            if what not in before:
                raise NearfarError(
                    f"{folder / INPUTS}: is damaged: it does not say what {what} was. Start again: choose another "
                    f"--output, or remove {folder}."
                )
            if folder == self.path:
                raise NearfarError(
                    f"{folder}: {what} changed since this run began. Restore it; or start again: choose another "
                    f"--output, or remove {folder}."
                )
            raise NearfarError(
                f"{self.path}: {what} changed since {folder} of the same group was trained. Restore it; or start the "
                "group again with another --output."
            )

    def begin(self, settings: Mapping[str, str]) -> None:
        """Write down what the run is made of: its inputs, then ``settings``, name -> text, config.toml last.

        Raises:
            NearfarError: the disk refuses; another process was faster.
        """
        self._processes.broadcast_from_first(partial(self._begin, settings))

    def _begin(self, settings: Mapping[str, str]) -> None:
        if not self._locked:
            self._lock()
            self._check(resume=False)
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.path / INPUTS, json.dumps(self.inputs, indent=1, ensure_ascii=False) + "\n")
        for name in sorted(settings, key=lambda name: name == CONFIG):
            write_text(self.path / name, settings[name])

    def finish(self) -> None:
        """Remove the note of the inputs, which the account of the finished run holds too."""
        with disk_errors(self.path):
            (self.path / INPUTS).unlink(missing_ok=True)

    def _check(self, *, resume: bool) -> State:
        return check_folder(
            self._config,
            resume=resume,
            find_differences=self._find_differences,
            info_file=self._info_file,
            what=self._what,
        )

    def _lock(self) -> None:
        self.enter_context(folder_lock(self.path))
        self._locked = True

    def _check_parts(self) -> None:
        from nearfar.training.checkpoint import Checkpoints
        from nearfar.training.display import lines_up_to_step

        Checkpoints(self.path).check(best=self._config.keep == "best")
        lines_up_to_step(self.path / "metrics.jsonl", up_to=0)


def check_folder(
    config: RunConfig,
    *,
    resume: bool,
    find_differences: FindDifferences = no_differences,
    info_file: str = RUN_INFO,
    what: str = "run",
) -> State:
    """Whether the run folder is free, or holds this very run, unfinished or finished.

    Raises:
        NearfarError: it holds something else; a run and ``resume`` does not say to go on; nothing and it does.
    """
    folder = Path(config.output)
    if not (folder / CONFIG).exists():
        if resume and not folder.exists():
            raise NearfarError(f"{folder}: there is no {what} to resume.")
        if folder.exists() and not is_empty(folder):
            raise NearfarError(f"{folder}: is in the way and holds no {what} (no {CONFIG}); choose another --output.")
        return "fresh"
    refuse_other_settings(folder, config, find_differences=find_differences)
    if (folder / info_file).exists():
        if not resume:
            tables = folder / info_file.replace(".json", ".md")
            where = f"its model is {folder / 'model'}" if info_file == RUN_INFO else f"its tables are in {tables}"
            raise NearfarError(f"{folder}: holds this {what}, finished; {where}.")
        return "finished"
    if not resume:
        raise NearfarError(f"{folder}: holds this {what}, unfinished. Go on with it by --resume, or remove the folder.")
    return "unfinished"


def is_empty(folder: Path) -> bool:
    """Whether it is a folder in which no run was begun."""
    return folder.is_dir() and all(entry.name in LEFTOVERS for entry in folder.iterdir())


def refuse_other_settings(
    folder: Path, config: RunConfig, *, find_differences: FindDifferences = no_differences
) -> None:
    """Make sure that the run in ``folder`` has the settings of ``config``.

    Raises:
        NearfarError: it has others; names them.
    """
    differ = _differ(folder / CONFIG, config)
    if "method" in differ:
        raise NearfarError(f"{folder}: holds a run of another method; choose another --output.")
    differ += find_differences(folder)
    if differ:
        raise NearfarError(
            f"{folder}: holds a run with other settings ({', '.join(map(flag, differ))}); choose another --output."
        )


def _differ(file: Path, config: RunConfig) -> list[str]:
    """In which settings the file and the config differ; OUTPUT, a path that can be written in many ways, is none."""
    kind, values = load_toml(file)
    before, now = asdict(build(kind, values, source=file)), asdict(config)
    if now[PRECISION] == "auto" and PRECISION not in (read_input_fingerprints(file.parent) or {}):
        now[PRECISION] = before[PRECISION]  # an earlier version began it, and had no auto
    differ = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key) and key != "output")
    return differ if kind is type(config) else ["method", *differ]


def read_run_info(folder: Path) -> dict[str, Any]:
    """The run.json of a finished run, its scores checked.

    Raises:
        NearfarError: it cannot be read, or is damaged.
    """
    file = folder / RUN_INFO
    again = f"Remove {folder} and train again, or bring the file back."
    run_info = read_json(file, otherwise=again)
    numbers = ("step", "best_step", "start_score", "best_score", "seconds")
    config = run_info.get("config") if isinstance(run_info, dict) else None
    if not isinstance(config, dict) or type(config.get("seed")) is not int:
        raise NearfarError(f"{file}: is damaged: it lacks the run's config with its seed. {again}")
    for name in numbers:
        if type(run_info.get(name, 0)) not in (int, float, type(None)):
            raise NearfarError(f"{file}: is damaged: {name} is no number. {again}")
    return dict(run_info)


def read_input_fingerprints(folder: Path) -> dict[str, str] | None:
    """The fingerprints of what a run read; None where it has no note of them.

    Raises:
        NearfarError: the note is damaged.
    """
    file = folder / INPUTS
    again = f"Start again: choose another --output, or remove {folder}."
    if file.exists():
        inputs = read_json(file, otherwise=again)
    elif (folder / RUN_INFO).is_file():
        file = folder / RUN_INFO
        inputs = read_run_info(folder).get("inputs")
        if inputs is None:
            return None
    else:
        return None
    if not isinstance(inputs, dict) or not all(isinstance(value, str) for value in inputs.values()):
        raise NearfarError(f"{file}: is damaged: the inputs are not an object of fingerprints. {again}")
    return inputs


def fingerprint_rows(*parts: Iterable[Sequence[object] | object]) -> str:
    """Of rows in their order: tuples of texts and numbers, or single values."""
    digest = hashlib.sha256()
    for part in parts:
        for row in part:
            fields = row if isinstance(row, tuple | list) else (row,)
            digest.update("\t".join(map(str, fields)).encode("utf-8", "surrogatepass") + b"\n")
        digest.update(b"\x00")
    return digest.hexdigest()[:16]


def fingerprint_model(model: str | Path) -> str:
    """Of all files that make a model what it is.

    Raises:
        NearfarError: the model cannot be had, or a file of it cannot be read.
    """
    from nearfar.encoder.weights import FILES, locate, sha256_of

    folder = locate(model)
    digest = hashlib.sha256()
    for file in sorted({file for kind in FILES for part in _module_folders(folder) for file in part.glob(kind)}):
        if not file.is_file():  # opening a pipe would wait for its writer
            continue
        try:
            found = bytes.fromhex(sha256_of(file))
        except OSError as error:
            raise NearfarError(f"{file}: cannot be read ({error.strerror}).") from error
        digest.update(f"{file.relative_to(folder)} ".encode() + found)
    return digest.hexdigest()[:16]


def _module_folders(folder: Path) -> list[Path]:
    """The folder and those of its modules: not those that hold other things, such as a run's output."""
    try:
        listed = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        names = [entry["path"] for entry in listed if entry["path"]]
        return [folder, *(folder / name for name in names if (folder / name).is_dir())]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return [folder]  # no modules; if the file is damaged, opening the model says so
