"""Every command that writes, as a scenario: the start state, the flags, how to continue, and which results are compared.

scenario = SCENARIOS["train scl"]
start_state(scenario, server, shared, folder)       # a copy of its inputs, prepared once in ``shared``
done = run(scenario.arguments, server, folder)      # nearfar, in blocks of a few rows
expected = undisturbed(scenario, server, shared)    # results of a run without faults, computed once
assert results(scenario, folder) == expected
"""

import importlib
import json
import os
import re
import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nearfar.config import METHODS
from tests.campaign.server import Done, Server

SMALL = {
    "nearfar.commands.back_translate.command:BLOCK": 2,
    "nearfar.commands.dedup.search:SAVE_EVERY": 10,
    "nearfar.commands.encode.work_folder:BLOCK": 12,
    "nearfar.commands.mine.search:CHUNK": 10,
    "nearfar.commands.search.extend:MAX_BLOCK_CHARACTERS": 400,
    "nearfar.commands.train.teacher:BLOCK": 20,
}
"""``module:constant`` -> the value in :func:`run`, so that a command saves its work several times on a few rows."""
ENCODE_BLOCK = 12
VARYING = ("date", "seconds", "items_per_second", "peak_memory_gib")
"""Keys of JSON objects with a clock or the memory in use; their values are not compared."""
TRAIN = (
    "--model tiny --evaluate-on dev.tsv --batch-size 8 --max-steps 5 --evaluate-every 2 --checkpoint-every 2 "
    "--learning-rate 1e-3 --output out"
)
DATA = {
    "premise_column": "nli.tsv",
    "translation_column": "translated.tsv",
    "score_column": "scored.tsv",
    "anchor_column": "triplets.tsv",
    "label_column": "labelled.tsv",
    "text_column": "sentences.txt",
}
"""A setting of a method -> the file of the rows that it reads, as in ``tests.method_configs``."""


@dataclass(frozen=True)
class Scenario:
    """A command, small enough for thousands of runs.

    ``inputs``: files and folders of :func:`write_inputs` that the start state has. ``arguments``: of nearfar, with
    relative paths. ``written``: the files and folders that the command writes. ``first``: commands that make more of
    the start state. ``resume``: arguments that continue a stopped run, if they are not the same.
    ``growing``: results that are extended under their final name, so that a part of them is valid. ``needs``: packages.
    """

    name: str
    inputs: str
    arguments: str
    written: str
    first: tuple[str, ...] = ()
    resume: str = ""
    growing: str = ""
    needs: str = ""

    @property
    def continued(self) -> str:
        """The arguments that continue a run that was stopped."""
        return self.resume or self.arguments

    @property
    def is_possible(self) -> bool:
        """Whether the packages that it needs are installed."""
        return all(map(find_spec, self.needs.split()))


def _train(method: str) -> Scenario:
    kind = METHODS[method]
    data = next((file for setting, file in DATA.items() if hasattr(kind, setting)), "nli.tsv")
    extra, inputs = "", f"tiny dev.tsv {data}"
    if hasattr(kind, "teacher"):
        extra, inputs = " --teacher teacher", f"{inputs} teacher"
    arguments = f"train {method} --data {data} {TRAIN}{extra}"
    return _resumed(f"train {method}", inputs, arguments, growing="out/metrics.jsonl")


def _resumed(name: str, inputs: str, arguments: str, written: str = "out", **more: Any) -> Scenario:
    """A command that continues with --resume."""
    return Scenario(name, inputs, arguments, written, resume=f"{arguments} --resume", **more)


EVALUATE = "evaluate {} --pairs dev.tsv --labelled labelled.tsv --folds 2 --resamples 20 --output {}"
ENCODE = "encode tiny --precision fp32"
STUDY = "study study.toml --engine inline --resamples 20 --output out"
ALL = [
    *map(_train, METHODS),
    _resumed("train held-out rows", "tiny triplets.tsv", f"train --data triplets.tsv {TRAIN}".replace(
        "--evaluate-on dev.tsv", "--ema 0.9"), growing="out/metrics.jsonl"),
    _resumed(
        "finetune",
        "pairs-model colours.tsv",
        "finetune colours.tsv --model pairs-model --batch-size 8 --max-steps 5 --evaluate-every 2 --checkpoint-every 2 "
        "--validation-rows 15 --learning-rate 1e-3 --output out",
        growing="out/metrics.jsonl",
    ),
    Scenario("study", "tiny nli.tsv dev.tsv scored.tsv study.toml", STUDY, "out", growing="out/cells/**/metrics.jsonl"),
    _resumed("encode npy", "tiny sentences.txt", f"{ENCODE} --input sentences.txt --output out.npy", "out.npy"),
    _resumed("encode jsonl to parquet", "tiny table.jsonl", f"{ENCODE} --input table.jsonl --column text --with-texts "
             "--output out.parquet", "out.parquet"),
    _resumed("encode parquet to int8", "tiny table.parquet", f"{ENCODE} --input table.parquet --column text "
             "--quantize int8 --output out.npy", "out.npy*"),
    _resumed("encode over a file", "tiny teacher sentences.txt",
             f"{ENCODE} --input sentences.txt --overwrite --output out.npy", "out.npy",
             first=("encode teacher --input sentences.txt --output out.npy",)),
    _resumed("encode shards", "tiny parts", f"{ENCODE} --input parts/*.parquet --column text --shard-rows 23 "
             "--output out"),
    _resumed("mine", "tiny triplets.tsv sentences.txt", "mine --model tiny --data triplets.tsv --corpus sentences.txt "
             "--relative-margin none --output out.tsv", "out.tsv*"),
    Scenario("search", "tiny table.tsv sentences.txt", "search --model tiny --input table.tsv --column text --queries "
             "sentences.txt --top 3 --index out.index --output out.tsv", "out.index out.tsv", growing="out.index/*"),
    Scenario("back-translate", "forward backward sentences.txt", "back-translate --input sentences.txt --forward "
             "forward --backward backward --beams 2 --batch-size 4 --max-length 8 --output out.tsv", "out.tsv*",
             growing="out.tsv out.tsv.json"),
    _resumed("dedup", "tiny sentences.txt", "dedup --model tiny --input sentences.txt --threshold 0.9 --output out.txt "
             "--groups groups.tsv", "out.txt* groups.tsv"),
    Scenario("evaluate", "tiny dev.tsv labelled.tsv", EVALUATE.format("tiny", "out.json"), "out.json out.md"),
    Scenario("evaluate over a result", "tiny teacher dev.tsv labelled.tsv", EVALUATE.format("tiny", "out.json"),
             "out.json out.md", first=(EVALUATE.format("teacher", "out.json"),)),
    Scenario("compare", "tiny teacher dev.tsv labelled.tsv", "compare a.json b.json --resamples 50 --output out.json",
             "out.json out.md", first=(EVALUATE.format("tiny", "a.json"), EVALUATE.format("teacher", "b.json"))),
    Scenario("report", "tiny teacher dev.tsv labelled.tsv nli.tsv", "report run a.json b.json --resamples 50 "
             "--output out.html", "out.html out.md",
             first=(EVALUATE.format("tiny", "a.json"), EVALUATE.format("teacher", "b.json"),
                    f"train scl --data nli.tsv {TRAIN}".replace("--output out", "--output run"))),
    Scenario("geometry", "tiny dev.tsv scored.tsv labelled.tsv", "geometry tiny --pairs dev.tsv --task scored.tsv "
             "--labelled labelled.tsv --positive-above 1 --output out", "out"),
    Scenario("geometry page", "tiny sentences.txt", "geometry tiny --texts sentences.txt --page out.html", "out.html"),
    Scenario("soup", "tiny other dev.tsv", "soup tiny other --greedy --evaluate-on dev.tsv --output out", "out"),
    Scenario("static", "tiny", "static tiny --dim 8 --output out", "out"),
    Scenario("export onnx", "tiny dev.tsv", "export tiny --evaluate-on dev.tsv --output out", "out",
             needs="onnx onnxscript onnxruntime"),
    Scenario("export openvino", "tiny dev.tsv", "export tiny --format openvino --evaluate-on dev.tsv --output out",
             "out", needs="openvino"),
    Scenario("get-data", "download", "get-data mr cr trec --source download --output out", "out"),
]  # fmt: skip
SCENARIOS = {scenario.name: scenario for scenario in ALL if scenario.is_possible}
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


def write_inputs(folder: str) -> None:
    """Write the inputs of all scenarios; called in a fork of the server."""
    import pyarrow
    import pyarrow.parquet

    from tests.commands.get_data.downloads import classification, write_folder
    from tests.encoder.tiny_pairs import save_tiny_for_pairs
    from tests.method_configs import write_data
    from tests.tiny import save_tiny, sentences, write_colours
    from tests.tiny_seq2seq import save_tiny_seq2seq

    root = write_data(Path(folder), rows=31)  # tiny, noisy, teacher, dev.tsv, and the files of DATA
    shutil.rmtree(root / "tiny")
    (root / "noisy").rename(root / "tiny")
    save_tiny(root / "other", seed=2, dropout=0.3)
    save_tiny_for_pairs(root / "pairs-model")
    for seed, name in enumerate(("forward", "backward")):
        save_tiny_seq2seq(root / name, seed=seed)
    write_colours(root / "colours.tsv")
    (root / "study.toml").write_text(_STUDY, encoding="utf-8")
    texts = sentences(60, seed=5, longest=9)
    rows = [{"id": f"id-{number}", "text": text} for number, text in enumerate(texts)]
    (root / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (root / "table.tsv").write_text("id\ttext\n" + "".join("\t".join(row.values()) + "\n" for row in rows))
    table = pyarrow.Table.from_pylist(rows)
    pyarrow.parquet.write_table(table, root / "table.parquet", row_group_size=17)
    (root / "parts").mkdir()
    for number, start in enumerate((0, 40)):
        pyarrow.parquet.write_table(table.slice(start, 40), root / "parts" / f"{number}.parquet", row_group_size=17)
    write_folder(root / "download", classification(rows=6))


def nearfar(arguments: Sequence[str]) -> None:
    """Run a command in blocks of a few rows; called in a fork of the server."""
    from nearfar.cli import main
    from nearfar.commands.encode import command
    from nearfar.commands.encode.shards import command as shards

    for place, value in SMALL.items():
        module, _, name = place.partition(":")
        found = importlib.import_module(module)
        assert isinstance(getattr(found, name), int), place
        setattr(found, name, value)
    command.BLOCK = shards.BLOCK = ENCODE_BLOCK
    command.encode = partial(command.encode, block=ENCODE_BLOCK)
    raise SystemExit(main(list(arguments)))


def run(arguments: str, server: Server, folder: Path, shim: Mapping[str, str] | None = None) -> Done:
    """Run nearfar in ``folder`` in blocks of a few rows."""
    return server.function(f"{__name__}:nearfar", {"arguments": arguments.split()}, cwd=folder, shim=shim)


_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def prepared(place: Path, make: Callable[[Path], None]) -> Path:
    """A folder that is made once, by the first thread that wants it."""
    with _locks[str(place)]:
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=place.parent))
            make(temporary)
            temporary.rename(place)
    return place


def _succeed(arguments: str, server: Server, folder: Path) -> None:
    done = run(arguments, server, folder)
    if done.status != 0:
        raise RuntimeError(f"nearfar {arguments}: {done.status}: {done.output}")


def start_state(scenario: Scenario, server: Server, shared: Path, folder: Path) -> None:
    """Copy the start state into the folder of a case."""

    def make_inputs(place: Path) -> None:
        done = server.function(f"{__name__}:write_inputs", {"folder": str(place)}, cwd=place)
        if done.status != 0:
            raise RuntimeError(done.output)

    def make_start(place: Path) -> None:
        inputs = prepared(shared / "inputs", make_inputs)
        for name in scenario.inputs.split():
            source = inputs / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, place / name)
        for arguments in scenario.first:
            _succeed(arguments, server, place)

    shutil.copytree(prepared(shared / "start" / scenario.name, make_start), folder, dirs_exist_ok=True)


def undisturbed(scenario: Scenario, server: Server, shared: Path) -> dict[str, bytes]:
    """The results of a run without faults."""

    def make(place: Path) -> None:
        start_state(scenario, server, shared, place)
        _succeed(scenario.arguments, server, place)

    return results(scenario, prepared(shared / "whole" / scenario.name, make))


def files_of(folder: Path) -> Iterator[Path]:
    """All files and symbolic links of a folder."""
    for parent, _, names in sorted(os.walk(folder)):
        yield from (Path(parent, name) for name in sorted(names))


def results(scenario: Scenario, folder: Path) -> dict[str, bytes]:
    """The files that the scenario writes, by their names, without what :func:`comparable` removes."""
    found = {
        str(file.relative_to(folder)): file
        for pattern in scenario.written.split()
        for file in _matching(folder, pattern)
    }
    return {name: comparable(name, file.read_bytes()) for name, file in sorted(found.items())}


def _matching(folder: Path, pattern: str) -> Iterator[Path]:
    for path in folder.glob(pattern):
        yield from files_of(path) if path.is_dir() else (path,)


def comparable(name: str, content: bytes) -> bytes:
    """The content of a result file without clocks, memory and the generation of an index."""
    return content
