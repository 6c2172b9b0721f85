"""Data sets and models that a study reads, identified by their content, so that every machine gives a job one key."""

import hashlib
import os
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from nearfar.baselines import is_baseline, parse_spec
from nearfar.data.catalog import parse
from nearfar.data.named_sets import CATALOG, FINETUNING_TASKS, MIXTURES, PROBE_TASKS, VOCABULARY, how_to_get
from nearfar.data.paths import as_path, is_file, status
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
    advice: str = ""
    """How to get it if it is missing or on the hub."""

    @property
    def problem(self) -> str:
        """What is missing and how to get it."""
        return self.advice if self.advice.startswith(f"{self.spec}:") else f"{self.spec}: {self.advice}"

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
        if path and status(as_path(path)) is not None:
            return _of_path(spec, as_path(path), rest)
    if spec.startswith("hub:") or _is_hub_name(name):
        return Source(spec, spec, HUB, f"{spec.removeprefix('hub:')} is read from the Hugging Face Hub")
    return Source(spec, spec, None, f"{spec}: no such file")


def find_task(task: str) -> Source:
    """The data of a task of ``nearfar evaluate``."""
    return _joined(task, [find_source(PROBE_TASKS[task].spec)]) if task in PROBE_TASKS else find_source(task)


def find_finetuning_task(task: str) -> Source:
    """The data of a task of ``nearfar finetune``."""
    if task not in FINETUNING_TASKS:
        return find_source(task)
    entry = FINETUNING_TASKS[task]
    return _joined(task, [find_source(one) for one in (entry.source, entry.test, entry.validation) if one is not None])


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
        return Source(model, model, None, f"{model}: is no model folder (it has no config.json)")
    if folder.is_absolute() or model.startswith(".") or model.count("/") > 1:
        return Source(model, model, None, f"{model}: no such model folder")
    return Source(model, model, HUB, f"{model} is read from the Hugging Face Hub unless it is in the local cache")


def _of_model(spec: str, folder: Path) -> Source:
    """A model folder by its files, without the hashes of its training texts, which change no vector."""
    modules = [one.parent for one in folder.glob("*/config.json")]
    files = sorted({file for kind in _MODEL_FILES for part in (folder, *modules) for file in part.glob(kind)})
    files = [file for file in files if file.name != SEEN_FILE and is_file(file)]
    digest = _hash(*(f"{file.relative_to(folder).as_posix()} {digest_of_file(file)}" for file in files))
    return Source(spec, f"model-{digest}", digest)


def _find_baseline(spec: str) -> Source:
    from nearfar.baselines.words import INSTALL

    parts = parse_spec(spec)
    if parts.name == "use" and find_spec("tensorflow_hub") is None:
        return Source(spec, spec, None, INSTALL)
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
    root = os.environ.get("NEARFAR_DATA")
    files = [as_path(root) / entry.folder / entry.files.get(split, f"{split}.tsv") for split in splits] if root else []
    missing = [split for split, file in zip(splits, files, strict=True) if not is_file(file)] if root else splits
    if not missing:
        return Source(spec, spec, _hash(*map(digest_of_file, files)))
    on_hub = entry.hub is not None and ("all" in entry.hub_splits or all(one in entry.hub_splits for one in missing))
    return Source(spec, spec, HUB if on_hub else None, how_to_get(spec))


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
    missing = [one for one in parts if one.fingerprint is None]
    on_hub = [one for one in parts if one.fingerprint == HUB]
    advice = "; ".join(dict.fromkeys(one.advice for one in missing or on_hub))
    digest = None if missing else HUB if len(on_hub) == len(parts) else _hash(*(str(one.fingerprint) for one in parts))
    return Source(spec, spec, digest, advice)


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
