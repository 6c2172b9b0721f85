"""Data sets and models that a study reads, identified by their content, so that every machine gives a job one key."""

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from nearfar.baselines import is_baseline, parse_spec
from nearfar.data.catalog import data_folder, parse
from nearfar.data.named_sets import CATALOG, FINETUNING_TASKS, MIXTURES, PROBE_TASKS, VOCABULARY, how_to_get
from nearfar.data.paths import as_path
from nearfar.disk import read_errors, sha256_of
from nearfar.disk.model_folder import SEEN_FILE, model_of_run

HUB = "hub"
"""Fingerprint of what is read from the hub: it is identified by its name alone."""
GENERATED = "microworld"
"""Fingerprint of texts that this version of nearfar makes or has: they are identified by their name alone."""
_FILE_BASELINES = ("glove", "use")
"""Baselines that read a file or folder, not a model."""
_MODEL_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")


class Source(NamedTuple):
    """A data set or model that a setting names."""

    spec: str
    """The value of the setting."""
    written: str
    """The value in the settings of a job, the same on every machine: paths are replaced by fingerprints."""
    fingerprint: str | None
    """SHA-256 of its content (16 hex digits), :data:`HUB`, or None if it is missing."""
    missing: tuple[str, ...] = ()
    """What of it is neither here nor on the hub, by split, each with how to get it; none if it has a fingerprint."""
    on_hub: tuple[str, ...] = ()
    """What of it is not here and is read from the hub, by split, each with how to get it."""

    def named(self) -> "Source":
        """The source, written as it is named: the name is part of the result."""
        return self._replace(written=self.spec)


def find_source(spec: str) -> Source:
    """A data set by its spec (:mod:`nearfar.data.catalog`); nothing is downloaded.

    Raises:
        NearfarError: a file that cannot be read.
    """
    name = spec.partition(":")[0]
    if spec == VOCABULARY or (name in CATALOG and CATALOG[name].packaged):
        return Source(spec, spec, GENERATED)
    if name in MIXTURES:
        return _joined(spec, [find_source(f"{member}{spec[len(name) :]}") for member in MIXTURES[name]])
    if name in CATALOG:
        return _find_named(spec)
    for path, rest in ((spec, ""), (spec.rpartition(":")[0], f":{spec.rpartition(':')[2]}")):
        if path and as_path(path).exists():
            return _of_path(spec, as_path(path), rest)
    if spec.startswith("hub:") or _is_hub_name(name):
        return Source(spec, spec, HUB, on_hub=(f"{spec.removeprefix('hub:')}: is downloaded on first use.",))
    return Source(spec, spec, None, (f"{spec}: no such file",))


def find_task(task: str) -> Source:
    """The data of a task of ``nearfar evaluate``."""
    return _joined(task, [find_source(PROBE_TASKS[task].spec)]) if task in PROBE_TASKS else find_source(task)


def find_finetuning_task(task: str) -> Source:
    """The data of a task of ``nearfar finetune``, as it is named; another training split stands after a colon."""
    name, _, split = task.partition(":")
    if name not in FINETUNING_TASKS:
        return find_source(task).named()
    entry = FINETUNING_TASKS[name]
    rows = f"{entry.source}:{split}" if split else entry.source
    return _joined(task, [find_source(one) for one in (rows, entry.test, entry.validation) if one is not None])


def find_model(model: str) -> Source:
    """A model folder, run folder, hub name, or baseline.

    Raises:
        NearfarError: a damaged model folder, or an invalid baseline.
    """
    if is_baseline(model):
        return _find_baseline(model)
    folder = as_path(model)
    if folder.is_dir():
        files = model_of_run(folder)
        if any((files / name).is_file() for name in ("config.json", "modules.json")):
            return _of_model(model, files)
        return Source(model, model, None, (f"{model}: is no model folder (it has no config.json)",))
    if folder.is_absolute() or model.startswith(".") or model.count("/") > 1:
        return Source(model, model, None, (f"{model}: no such model folder",))
    return Source(model, model, HUB, on_hub=(f"{model}: is downloaded on first use.",))


def _of_model(spec: str, folder: Path) -> Source:
    """A model folder by its files, without the hashes of its training texts, which change no vector."""
    modules = [one.parent for one in folder.glob("*/config.json")]
    files = sorted({file for kind in _MODEL_FILES for part in (folder, *modules) for file in part.glob(kind)})
    files = [file for file in files if file.name != SEEN_FILE and file.is_file()]
    digest = _hash(*(f"{file.relative_to(folder).as_posix()} {digest_of_file(file)}" for file in files))
    return Source(spec, f"model-{digest}", digest)


def _find_baseline(spec: str) -> Source:
    from nearfar.baselines.words import INSTALL

    parts = parse_spec(spec)
    if parts.name == "use" and find_spec("tensorflow_hub") is None:
        return Source(spec, spec, None, (f"{spec}: {INSTALL}",))
    read = []
    if parts.source:
        read.append(find_source(parts.source) if parts.name in _FILE_BASELINES else find_model(parts.source))
    if parts.texts is not None:
        read.append(find_source(parts.texts))
    if not read:
        return Source(spec, spec, parts.name)
    options = "".join(f",{name}={value}" for name, value in sorted(parts.options.items()))
    written = f"{parts.name}:{'@'.join(one.written for one in read)}{options}"
    return _joined(spec, read)._replace(written=written)


def _find_named(spec: str) -> Source:
    name, requested = parse(spec)
    entry = CATALOG[name]
    splits = requested or entry.splits
    folder = data_folder(entry)
    files = {split: folder / entry.files.get(split, f"{split}.tsv") for split in splits} if folder else {}
    absent = [split for split in splits if split not in files or not files[split].is_file()]
    if not absent:
        return Source(spec, spec, _hash(*map(digest_of_file, files.values())))
    if "all" in entry.hub_splits and not requested:
        return Source(spec, spec, HUB, on_hub=(f"{name}: {how_to_get(name)}",))
    lines: dict[tuple[bool, str], list[str]] = {}
    for split in absent:
        lines.setdefault((split in entry.hub_splits, how_to_get(f"{name}:{split}")), []).append(split)
    named = {key: name if some == ["all"] else f"{name}:{'+'.join(some)}" for key, some in lines.items()}
    missing, on_hub = (
        tuple(f"{some}: {how}" for (of_hub, how), some in named.items() if of_hub == wanted) for wanted in (False, True)
    )
    return Source(spec, spec, None if missing else HUB, missing, on_hub)


def _of_path(spec: str, path: Path, rest: str) -> Source:
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    names = [] if path.is_file() else [file.relative_to(path).as_posix() for file in files]
    digest = _hash(*map(digest_of_file, files), *names)
    return Source(spec, f"file-{digest}{''.join(path.suffixes[-2:])}{rest}", digest)


def _is_hub_name(name: str) -> bool:
    path = as_path(name)
    return name.count("/") in (1, 2) and not path.is_absolute() and not name.startswith(".") and not path.suffix


def _joined(spec: str, parts: Sequence[Source]) -> Source:
    """One source of several; its fingerprint is missing if that of a part is."""
    missing = tuple(dict.fromkeys(line for one in parts for line in one.missing))
    on_hub = tuple(dict.fromkeys(line for one in parts for line in one.on_hub))
    prints = [str(one.fingerprint) for one in parts]
    return Source(spec, spec, None if missing else HUB if {*prints} == {HUB} else _hash(*prints), missing, on_hub)


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def digest_of_file(file: Path) -> str:
    """The SHA-256 of a file's content.

    Raises:
        NearfarError: it cannot be read.
    """
    known = file.stat()
    return _digest_of(file, known.st_size, known.st_mtime_ns)


@cache
def _digest_of(file: Path, *_: int) -> str:
    """SHA-256 of a file; its size and time of modification are part of the cache's key."""
    with read_errors(file):
        return sha256_of(file)
