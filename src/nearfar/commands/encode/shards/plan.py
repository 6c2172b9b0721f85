"""The plan of a run in shards, ``_nearfar/plan.json``: settings, model, input files and the rows of each part."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from nearfar.commands.encode.shards.corpus import Corpus, InputFile, list_files, same_files
from nearfar.commands.encode.shards.folders import OWN, OutputFolder, lock, open_folder
from nearfar.config.encode import DEFAULT_SHARD_ROWS, EncodeConfig
from nearfar.config.values import flag, join_changes
from nearfar.disk.reading import check_characters
from nearfar.types import NearfarError

FORMAT = 1
"""Version of the layout of the folder."""
KIND, PLAN = "nearfar embeddings in parts", f"{OWN}/plan.json"
RANGES = f"{OWN}/ranges.npy"
"""The ranges of int8 codes, float32 [2, dim]."""
_WAIT_SECONDS = 0.2
_RESOLVED = ("precision", "limit", "block")
"""Settings that the process decides that makes the plan: precision, maximum number of tokens, texts in a block."""
_WORDS = {"model": "the model's weights or settings changed", "calibrate": "the ranges of --calibrate changed"}
_USED = (
    *("model", "shard_rows", "column", "pooling", "prompt", "max_length", "normalize"),
    *("dimensions", "dtype", "quantize"),
)
"""Settings that a worker reads."""


@dataclass(frozen=True)
class Plan:
    """Everything that determines the bytes of the parts; the same for all processes that write them."""

    settings: Mapping[str, Any]
    """Flags that change the vectors or the columns, the fingerprint of the model, and the precision."""
    dim: int
    """Number of dimensions of an embedding."""
    files: tuple[InputFile, ...]
    schema: str
    """The kept columns: a serialised Arrow schema, in hexadecimal digits."""

    @property
    def rows(self) -> int:
        """Number of rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def shard_rows(self) -> int:
        """Number of rows of every part but the last one."""
        return int(self.settings["shard_rows"])

    @property
    def parts(self) -> int:
        """Number of parts."""
        return -(-self.rows // self.shard_rows)

    def row_range(self, part: int) -> tuple[int, int]:
        """The first row of a part, and the row after its last one."""
        return part * self.shard_rows, min((part + 1) * self.shard_rows, self.rows)

    @cached_property
    def digest(self) -> str:
        """Fingerprint of all that determines the parts; not of the folders of the input files."""
        content = self._content()
        content["files"] = [{**one, "address": None} for one in content["files"]]
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _content(self) -> dict[str, Any]:
        files = [file._asdict() for file in self.files]
        return {"settings": dict(self.settings), "dim": self.dim, "files": files, "schema": self.schema}

    def to_json(self) -> bytes:
        """The content of the file."""
        text = json.dumps({"kind": KIND, "format": FORMAT, **self._content()}, indent=1, ensure_ascii=False)
        return (text + "\n").encode()


def new_plan(settings: Mapping[str, Any], dim: int, corpus: Corpus) -> Plan:
    """The plan of a new run."""
    return Plan(settings, dim, corpus.files, corpus.kept.serialize().to_pybytes().hex())


def read_plan(folder: OutputFolder) -> Plan | None:
    """The plan in an output folder; None if there is none.

    Raises:
        NearfarError: it is damaged, or a newer version of nearfar wrote it.
    """
    content = folder.read(PLAN)
    if content is None:
        return None
    where = f"{folder.address}/{PLAN}"
    try:
        found = json.loads(content)
        check_characters(found, content.decode())
        if found["kind"] != KIND or type(found["format"]) is not int:
            raise ValueError("it has another kind")
        if found["format"] > FORMAT:
            raise NearfarError(f"{where}: has the format {found['format']}; update nearfar to read it.")
        files = tuple(_input_file(one) for one in found["files"])
        if missing := [name for name in (*_USED, *_RESOLVED) if name not in found["settings"]]:
            raise ValueError(f"it has no {missing[0]}")
        plan = Plan(found["settings"], int(found["dim"]), files, bytes.fromhex(found["schema"]).hex())
        if plan.shard_rows < 1 or plan.rows < 1 or plan.dim < 1:
            raise ValueError("it has a wrong number")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NearfarError(
            f"{where}: is damaged ({error}). Remove it and the parts in the folder to start again."
        ) from None
    return plan


def _input_file(fields: Mapping[str, Any]) -> InputFile:
    """An input file of the plan; ValueError or TypeError if a field is missing, unknown or of another type."""
    file = InputFile(**fields)
    texts, counts = (file.address, file.footer), (file.rows, file.size)
    if not all(isinstance(one, str) for one in texts) or not all(type(one) is int and one >= 0 for one in counts):
        raise ValueError("an input file has a wrong value")
    return file


@lru_cache(maxsize=1)
def plan_of_worker(address: str, digest: str) -> Plan:
    """The plan of a run that a worker takes part in, read once.

    Raises:
        NearfarError: it is not there, or another run has replaced it.
    """
    plan = read_plan(open_folder(address))
    if plan is None or plan.digest != digest:
        raise NearfarError(f"{address}/{PLAN}: belongs to another run. Start only one run in a folder.")
    return plan


def settings_of(config: EncodeConfig, model: str, calibrate: str | None) -> dict[str, Any]:
    """The settings of a plan but the precision, with the fingerprints of model and ranges."""
    return {
        "model": model,
        "shard_rows": config.shard_rows or DEFAULT_SHARD_ROWS,
        "column": config.column,
        "keep": list(config.keep),
        "pooling": config.pooling,
        "prompt": config.prompt,
        "max_length": config.max_length,
        "normalize": config.normalize,
        "dimensions": config.dimensions,
        "dtype": config.dtype,
        "quantize": config.quantize,
        "calibrate": calibrate,
    }


def check_same(plan: Plan, settings: Mapping[str, Any], config: EncodeConfig, folder: OutputFolder) -> Plan:
    """The plan, with the addresses where its input files are now, if it is the plan of the same run.

    Files are compared by names and sizes; a worker compares the footer of a file when it opens it.

    Raises:
        NearfarError: settings, model or input files differ; the message names what differs.
    """
    before = {name: value for name, value in plan.settings.items() if name not in _RESOLVED}
    changed = [
        _WORDS[name] if name in _WORDS else f"{flag(name)} was {_shown(old)}, is {_shown(new)}"
        for name in {**before, **settings}
        if (old := before.get(name)) != (new := settings.get(name))
    ]
    recorded = str(plan.settings["precision"])
    if config.precision != "auto" and not recorded.startswith(config.precision):
        changed.append(f"--precision was {recorded}, is {config.precision}")
    listed = list_files(config.input)
    if difference := same_files(plan.files, listed):
        changed.append(difference)
    if changed:
        raise NearfarError(
            f"{folder.address}: was started with different inputs or settings: {join_changes(changed)}. Give the same "
            "ones, or choose another --output."
        )
    files = tuple(file._replace(address=address) for file, (address, _) in zip(plan.files, listed, strict=True))
    return replace(plan, files=files)


def _shown(value: object) -> str:
    if value is None or value == []:
        return "not given"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def write_plan(folder: OutputFolder, plan: Plan) -> None:
    """Write the plan; from then on the folder holds a run."""
    folder.write(PLAN, plan.to_json())


def agree(
    folder: OutputFolder, make: Callable[[], Plan], write: Callable[[Plan], None], check: Callable[[Plan], Plan]
) -> Plan:
    """The plan of all processes that write to the folder: the one that is there, checked, or a new one, written.

    Of processes that start at once on one file system, one makes the plan, and the others wait for it. In an object
    store each of them makes it; they are the same.
    """
    while True:
        before = read_plan(folder)
        if before is None:
            with lock(folder) as locked:
                if not locked:
                    time.sleep(_WAIT_SECONDS)
                    continue
                before = read_plan(folder)
                if before is None:
                    for name in (PLAN, RANGES) if folder.shared is not None else ():
                        folder.clean(name)
                    write(make())
                    continue
        plan = check(before)
        if plan != before:  # the input files have moved
            write_plan(folder, plan)
        return plan
