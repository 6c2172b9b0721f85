"""Every command that writes, as a scenario: the start state, the flags, how to continue, which results are compared.

The functions that run them are in ``scenario_runs.py``.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from nearfar.config import METHODS
from tests.method_configs import DATA

TRAIN = (
    "--model tiny --evaluate-on dev.tsv --batch-size 8 --max-steps 5 --evaluate-every 2 --checkpoint-every 2 "
    "--learning-rate 1e-3 --output out"
)
RUN = "out/metrics.jsonl out/model/README.md"
"""What grows in a run folder; the card of the model gets scores and settings at the end."""


@dataclass(frozen=True)
class Scenario:
    """A command, small enough for thousands of runs.

    ``inputs``: files and folders of :func:`write_inputs` that the start state has. ``arguments``: of nearfar, with
    relative paths. ``written``: patterns of the files and folders that it writes. ``first``: commands that make more of
    the start state. ``resume``: arguments that continue a stopped run, if they are not the same. ``growing``: patterns
    of results that change under their final name while the command works, so that an earlier state is valid.
    ``needs``: packages.
    """

    name: str
    inputs: str
    arguments: str
    written: str = "out"
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
    data, extra = DATA[method], ""
    inputs = f"tiny dev.tsv {data}"
    if hasattr(kind, "teacher"):
        extra, inputs = " --teacher teacher", f"{inputs} teacher"
    arguments = f"train {method} --data {data} {TRAIN}{extra}"
    return _resumed(f"train {method}", inputs, arguments, growing=RUN)


def _resumed(name: str, inputs: str, arguments: str, **more: Any) -> Scenario:
    """A command that continues with --resume."""
    return Scenario(name, inputs, arguments, resume=f"{arguments} --resume", **more)


EVALUATE = "evaluate {} --pairs dev.tsv --labelled labelled.tsv --protocol exact --folds 2 --resamples 20 --output {}"
ENCODE = "encode tiny --precision fp32"
STUDY = "study study.toml --engine inline --resamples 20 --output out"
ALL = [
    *map(_train, METHODS),
    _resumed(
        "train held-out rows",
        "tiny pairs.tsv",
        f"train --data pairs.tsv {TRAIN}".replace("--evaluate-on dev.tsv", "--ema 0.9"),
        growing=RUN,
    ),
    _resumed(
        "finetune",
        "pairs-model colours.tsv",
        "finetune colours.tsv --model pairs-model --batch-size 8 --max-steps 5 --evaluate-every 2 --checkpoint-every 2 "
        "--validation-rows 15 --learning-rate 1e-3 --output out",
        growing=RUN,
    ),
    Scenario(
        "study",
        "tiny nli.tsv dev.tsv scored.tsv study.toml",
        STUDY,
        growing="out/study.json out/page.md out/*.csv out/table.tex",
    ),
    _resumed("encode npy", "tiny sentences.txt", f"{ENCODE} --input sentences.txt --output out.npy", written="out.npy"),
    _resumed(
        "encode jsonl to parquet",
        "tiny table.jsonl",
        f"{ENCODE} --input table.jsonl --column text --with-texts --output out.parquet",
        written="out.parquet",
    ),
    _resumed(
        "encode parquet to int8",
        "tiny table.parquet",
        f"{ENCODE} --input table.parquet --column text --quantize int8 --output out.npy",
        written="out.npy out.ranges.npy",
    ),
    _resumed(
        "encode over a file",
        "tiny teacher sentences.txt",
        f"{ENCODE} --input sentences.txt --overwrite --output out.npy",
        first=("encode teacher --input sentences.txt --output out.npy",),
        written="out.npy",
    ),
    _resumed(
        "encode shards", "tiny parts", f"{ENCODE} --input parts/*.parquet --column text --shard-rows 23 --output out"
    ),
    Scenario(
        "mine",
        "tiny triplets.tsv sentences.txt",
        "mine --model tiny --data triplets.tsv --corpus sentences.txt --relative-margin none --output out.tsv",
        written="out.tsv*",
    ),
    Scenario(
        "search",
        "tiny table.tsv sentences.txt",
        "search --model tiny --input table.tsv --column text --queries "
        "sentences.txt --top 3 --index out.index --output out.tsv",
        written="out.index out.tsv",
    ),
    Scenario(
        "back-translate",
        "forward backward sentences.txt",
        "back-translate --input sentences.txt --forward "
        "forward --backward backward --beams 2 --batch-size 4 --max-length 8 --output out.tsv",
        written="out.tsv*",
    ),
    Scenario(
        "dedup",
        "tiny sentences.txt",
        "dedup --model tiny --input sentences.txt --threshold 0.9 --output out.txt --groups groups.tsv",
        written="out.txt groups.tsv",
    ),
    Scenario("evaluate", "tiny dev.tsv labelled.tsv", EVALUATE.format("tiny", "out.json"), written="out.json out.md"),
    Scenario(
        "evaluate over a result",
        "tiny teacher dev.tsv labelled.tsv",
        EVALUATE.format("tiny", "out.json"),
        first=(EVALUATE.format("teacher", "out.json"),),
        written="out.json out.md",
    ),
    Scenario(
        "compare",
        "tiny teacher dev.tsv labelled.tsv",
        "compare a.json b.json --resamples 50 --output out.json",
        first=(EVALUATE.format("tiny", "a.json"), EVALUATE.format("teacher", "b.json")),
        written="out.json out.md",
    ),
    Scenario(
        "report",
        "tiny teacher dev.tsv labelled.tsv nli.tsv",
        "report run a.json b.json --resamples 50 --output out.html",
        first=(
            EVALUATE.format("tiny", "a.json"),
            EVALUATE.format("teacher", "b.json"),
            f"train scl --data nli.tsv {TRAIN}".replace("--output out", "--output run"),
        ),
        written="out.html out.md",
    ),
    Scenario(
        "geometry",
        "tiny dev.tsv scored.tsv labelled.tsv",
        "geometry tiny --pairs dev.tsv --task scored.tsv --labelled labelled.tsv --positive-above 1 --output out",
        resume="geometry tiny --pairs dev.tsv --task scored.tsv --labelled labelled.tsv --positive-above 1 --output out"
        " --overwrite",  # as its message advises, if plots exist without their geometry.json
    ),
    Scenario(
        "geometry page", "tiny sentences.txt", "geometry tiny --texts sentences.txt --page out.html", written="out.html"
    ),
    Scenario("soup", "tiny other dev.tsv", "soup tiny other --greedy --evaluate-on dev.tsv --output out"),
    Scenario("static", "tiny", "static tiny --dim 8 --output out"),
    Scenario(
        "export onnx",
        "tiny dev.tsv",
        "export tiny --evaluate-on dev.tsv --output out",
        needs="onnx onnxscript onnxruntime",
    ),
    Scenario(
        "export openvino",
        "tiny dev.tsv",
        "export tiny --format openvino --evaluate-on dev.tsv --output out",
        needs="openvino",
    ),
    Scenario("get-data", "download", "get-data mr cr trec --source download --output out", growing="out/sources.json"),
]
SCENARIOS = {scenario.name: scenario for scenario in ALL if scenario.is_possible}
"""Name, also of the group of its cases -> scenario."""
