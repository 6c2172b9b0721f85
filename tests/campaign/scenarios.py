"""The commands whose work is worth keeping, as scenarios: start state, arguments, how to continue; and how they run.

scenario = SCENARIOS["train scl"]
whole = undisturbed(scenario, shared)       # the calls and the files of a run without faults, recorded once
start_state(scenario, shared, folder)       # a copy of its inputs, prepared once in ``shared``
done = run(scenario.arguments, folder)      # nearfar, in blocks of a few rows
assert difference(contents(folder), whole.files) == ""
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from unittest.mock import patch

from tests.campaign.forks import Done, in_fork, nearfar
from tests.campaign.shim import Call, read_log, settings
from tests.encoder.tiny_pairs import save_tiny_for_pairs
from tests.method_configs import write_data
from tests.tiny import sentences, write_anchors, write_colours

TRAIN = "--model tiny --batch-size 8 --max-steps 5 --evaluate-every 2 --checkpoint-every 2 --output out"
ENCODE = "encode tiny --precision fp32"
RUN = "out/metrics.jsonl out/model/README.md"
"""What grows in a run folder; the card of the model gets scores and settings at the end."""


@dataclass(frozen=True)
class Scenario:
    """A command, small enough for thousands of runs.

    ``inputs``: files and folders of :func:`write_inputs` that the start state has. ``arguments``: of nearfar, with
    relative paths. ``first``: a command that makes more of the start state. ``resumes``: whether ``--resume`` continues
    it; otherwise the same arguments do. ``growing``: patterns of results that change under their final name while the
    command works, so that an earlier state is valid. ``kept``: a folder that stands from its first version to its last.
    """

    name: str
    inputs: str
    arguments: str
    first: str = ""
    resumes: bool = True
    growing: str = ""
    kept: str = ""

    @property
    def continued(self) -> str:
        """The arguments that continue a run that was stopped."""
        return f"{self.arguments} --resume" if self.resumes else self.arguments


def _train(name: str, inputs: str, words: str) -> Scenario:
    return Scenario(name, f"tiny {inputs}", f"train {words} {TRAIN}", growing=RUN, kept="out/checkpoint")


ALL = [
    _train("train scl", "nli.tsv dev.tsv", "scl --data nli.tsv --evaluate-on dev.tsv"),
    _train("train held-out rows", "pairs.tsv", "--data pairs.tsv --ema 0.9"),
    Scenario(
        "finetune",
        "pairs-model colours.tsv",
        "finetune colours.tsv --model pairs-model --batch-size 8 --max-steps 5 --evaluate-every 2 --checkpoint-every 2 "
        "--validation-rows 15 --learning-rate 1e-3 --output out",
        growing=RUN,
        kept="out/checkpoint",
    ),
    Scenario(
        "study",
        "tiny nli.tsv dev.tsv scored.tsv study.toml",
        "study study.toml --engine inline --resamples 20 --output out",
        resumes=False,
        growing="out/study.json out/page.md out/*.csv out/table.tex",
    ),
    Scenario("encode npy", "tiny sentences.txt", f"{ENCODE} --input sentences.txt --output out.npy"),
    Scenario(
        "encode over a file",
        "tiny teacher table.parquet sentences.txt",
        f"{ENCODE} --input table.parquet --column text --with-texts --overwrite --output out.parquet",
        first="encode teacher --input sentences.txt --output out.parquet",
    ),
    Scenario(
        "encode shards", "tiny parts", f"{ENCODE} --input parts/*.parquet --column text --shard-rows 23 --output out"
    ),
]
SCENARIOS = {scenario.name: scenario for scenario in ALL}
"""Name, also of the group of its cases -> scenario."""
_STUDY = """
title = "Two rows"
columns = ["scored.tsv", "validation"]
replicates = { seed = [1, 2] }
[train]
model = "tiny"
data = ["nli.tsv"]
evaluate_on = "dev.tsv"
max_steps = 4
batch_size = 8
evaluate_every = 2
checkpoint_every = 2
[evaluate]
pairs = ["scored.tsv"]
resamples = 10
[[rows]]
id = "untrained"
model = "tiny"
steps = ["evaluate"]
[[rows]]
id = "scl"
train = { method = "scl" }
"""


def write_inputs(folder: Path) -> None:
    """Write the inputs of all scenarios: tiny models and files of a few rows."""
    import pyarrow
    import pyarrow.parquet

    root = write_data(folder, rows=31)  # tiny, noisy, teacher, dev.tsv, and the files of DATA
    shutil.rmtree(root / "tiny")
    (root / "noisy").rename(root / "tiny")
    save_tiny_for_pairs(root / "pairs-model")
    write_anchors(root / "pairs.tsv", 120)
    write_colours(root / "colours.tsv")
    (root / "study.toml").write_text(_STUDY, encoding="utf-8")
    table = pyarrow.table({"text": sentences(60, seed=5, longest=9)})
    pyarrow.parquet.write_table(table, root / "table.parquet", row_group_size=17)
    (root / "parts").mkdir()
    for number, start in enumerate((0, 40)):
        pyarrow.parquet.write_table(table.slice(start, 40), root / "parts" / f"{number}.parquet", row_group_size=17)


BLOCK = 12
"""Texts in a part, so that a command saves its work several times on a few rows."""
_CLOCKS = "date|first_date|last_date|seconds|items_per_second|updates_per_second|texts_per_second|generation|commit"
_VARYING = (
    (re.compile(rf'"({_CLOCKS})": ?("[^"]*"|[-0-9.e]+|null)'.encode()), rb'"\1": VARIES'),
    (re.compile(rb"(?m)^Results: commits [^;]*; "), b"Results: "),
    (re.compile(rb", commit (None|[0-9a-f]{40}(-dirty)?)"), b""),
    (re.compile(rb'"commits": \{[^}]*\}'), b'"commits": VARIES'),
    (re.compile(rb"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"), b"DATE"),
    (re.compile(rb"\b[\d.]+ updates per second|training took [^,]+,"), b"SPEED"),
    (re.compile(rb'"/[^"]*/(?=out/cells/|parts/|table\.tsv")'), b'"FOLDER/'),
    (re.compile(rb'(?m)^  "resume": (true|false)'), b'  "resume": VARIES'),
    (re.compile(rb'"kernels": ?\{[^}]*\}'), b'"kernels": VARIES'),
)
"""What differs between two runs: clocks; absolute paths; ``--resume``; the commit, which is not known if git cannot be
started; and the kernels that the process used, since a process that only finishes a run needs fewer."""


def in_small_blocks(words: str) -> None:
    """Run a command in blocks of a few rows; called in a fork."""
    from nearfar.commands import encode

    encode.encode_parts = partial(encode.encode_parts, block=BLOCK)
    with patch("nearfar.commands.encode.vectors.PART_TEXTS", BLOCK):
        nearfar(words)


def run(words: str, folder: Path, environment: Mapping[str, str] | None = None) -> Done:
    """Run nearfar in a fork, in ``folder``."""
    return in_fork(partial(in_small_blocks, words), folder, environment)


def run_again(scenario: Scenario, folder: Path) -> Done:
    """Run the command as its user would: with ``--resume`` where that continues it, else without."""
    done = run(scenario.continued, folder)
    if done.status == 2 and scenario.resumes:  # nothing to continue
        again = run(scenario.arguments, folder)
        done = again if again.status == 0 else done
    return done


def prepared(folder: Path, make: Callable[[Path], object]) -> Path:
    """A folder that is made once."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
        make(temporary)
        temporary.rename(folder)
    return folder


def succeeded(done: Done) -> None:
    if done.status != 0:
        raise RuntimeError(f"status {done.status}: {done.output}")


def start_state(scenario: Scenario, shared: Path, folder: Path) -> None:
    """Copy the start state into the folder of a case."""

    def make_start(start: Path) -> None:
        inputs = prepared(shared / "inputs", write_inputs)
        for name in scenario.inputs.split():
            source = inputs / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, start / name)
        if scenario.first:
            succeeded(run(scenario.first, start))

    shutil.copytree(prepared(shared / "start" / scenario.name, make_start), folder, dirs_exist_ok=True)


class Undisturbed(NamedTuple):
    """A run without faults: its calls, and all files before and after it."""

    calls: list[Call]
    start: dict[str, bytes]
    files: dict[str, bytes]


_recorded: dict[Path, Undisturbed] = {}


def undisturbed(scenario: Scenario, shared: Path) -> Undisturbed:
    """The run without faults, recorded once in the shared folder."""

    def make(folder: Path) -> None:
        (folder / "start").mkdir()
        start_state(scenario, shared, folder / "start")
        shutil.copytree(folder / "start", folder / "work")
        succeeded(run(scenario.arguments, folder / "work", settings(folder / "work", log=folder / "log")))

    kept = prepared(shared / "undisturbed" / scenario.name, make)
    if kept not in _recorded:
        _recorded[kept] = Undisturbed(read_log(kept / "log"), contents(kept / "start"), contents(kept / "work"))
    return _recorded[kept]


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a case, by their names, as :func:`comparable`; empty folders end with a slash."""
    found = {}
    for parent, folders, names in os.walk(folder):
        for name in names:
            file = Path(parent, name)
            found[file.relative_to(folder).as_posix()] = comparable(name, file.read_bytes())
        if not folders and not names and Path(parent) != folder:
            found[f"{Path(parent).relative_to(folder).as_posix()}/"] = b""
    return dict(sorted(found.items()))


def comparable(name: str, content: bytes) -> bytes:
    """The content of a text file without what :data:`_VARYING` lists; other files as they are."""
    if name.endswith((".json", ".jsonl", ".toml", ".md", ".html")):
        for pattern, replacement in _VARYING:
            content = pattern.sub(replacement, content)
    return content


def difference(found: Mapping[str, bytes], expected: Mapping[str, bytes]) -> str:
    """What differs between the files of two folders, in words; empty if they are equal."""
    words = []
    for what, names in (
        ("missing", expected.keys() - found.keys()),
        ("left over", found.keys() - expected.keys()),
        ("different", {name for name in found.keys() & expected.keys() if found[name] != expected[name]}),
    ):
        if names:
            words.append(f"{what}: {', '.join(sorted(names)[:3])}{' ...' if len(names) > 3 else ''}")
    return "; ".join(words)


def half_written(scenario: Scenario, found: Mapping[str, bytes], whole: Undisturbed) -> str:
    """The files that have the name of an input or a result, but are neither the earlier nor the new version.

    ``found``: :func:`contents` after a command failed or was killed.
    """
    start, expected = whole.start, whole.files
    wrong = [name for name in start.keys() - found.keys() if name not in expected or start[name] == expected[name]]
    for name, content in found.items():
        versions = [one[name] for one in (start, expected) if name in one]
        grows = any(PurePosixPath(name).match(pattern) for pattern in scenario.growing.split())
        if versions and content not in versions and not (grows and _is_part(name, content, versions[-1])):
            wrong.append(name)
    return f"half-written or lost: {', '.join(sorted(wrong))}" if wrong else ""


def _is_part(name: str, content: bytes, whole: bytes) -> bool:
    """Whether a growing file is in a valid state: complete lines of the whole file, a JSON object, or another page."""
    if name.endswith((".tsv", ".jsonl")):
        return whole.startswith(content[: content.rfind(b"\n") + 1])
    if name.endswith(".json"):
        try:
            return isinstance(json.loads(content.replace(b": VARIES", b": 0")), dict)
        except json.JSONDecodeError:
            return False
    return bool(content)
