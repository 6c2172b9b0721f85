"""Time of help and start: wall and processor seconds of each verb's ``--help``, and of each verb on a tiny input.

    python benchmarks/help.py run       writes benchmarks/results/help.json
    python benchmarks/help.py report    fills its place in docs/costs.md from that file alone

Each measurement is a new process, and all cases take turns; the first round, which may compile modules, is a warm-up.
For comparison: a Python that does nothing, which is a lower bound, and programs that only import torch or transformers.
The verbs read about twenty rows and use encoders of two layers (:data:`COMMANDS`), so that nearly all of their time
is start-up.
"""

import argparse
import importlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import common
from common import MODEL, ROOT

import nearfar
from nearfar.cli import VERBS
from nearfar.commands.evaluate import evaluate
from nearfar.encoder.classifier import Classifier
from nearfar.registry import METHODS

LINES = 20
OUTPUT = "output"
"""Prefix of the names of all outputs."""
COMMANDS = {
    "train, 1 step": "train scl --model tiny --data nli.tsv --evaluate-on pairs.tsv --max-steps 1 --output output-run",
    "finetune, 1 step": "finetune labelled.tsv --model tiny --batch-size 8 --validation-rows 20 --max-steps 1 "
    "--output output-classifier",
    "predict": "predict classifier --input texts.txt --output output.tsv",
    "evaluate": "evaluate tiny --pairs pairs.tsv --resamples 0 --output output.json",
    "compare": "compare result.json result.json --resamples 100",
    "search": "search dog --model tiny --input texts.txt --index output-index",
    "encode": "encode tiny --input texts.txt --output output.npy",
    "encode, all-MiniLM-L6-v2": f"encode {MODEL} --input texts.txt --output output-minilm.npy",
    "geometry": "geometry tiny --pairs pairs.tsv --task pairs.tsv --output output-geometry",
    "report": "report result.json --output output.html",
    "back-translate": "back-translate --input texts.txt --forward there --backward there --max-length 8 "
    "--output output-back.tsv",
    "env": "env",
    "demo, 1 step": "demo --model tiny --max-steps 1 --output output-demo",
}
"""Name -> arguments of ``nearfar``."""
PAGE = common.Page("help", "costs")
NOTHING = "python, nothing"
CASES = {
    NOTHING: ["-c", "pass"],
    "import nearfar": ["-c", "import nearfar"],
    "nearfar --help": ["-m", "nearfar", "--help"],
    **{f"nearfar {verb} --help": ["-m", "nearfar", verb, "--help"] for verb in VERBS},
    **{f"nearfar train {method} --help": ["-m", "nearfar", "train", method, "--help"] for method in METHODS},
}
STARTS = {
    "import torch": ["-c", "import torch"],
    "import transformers, with a model's class": ["-c", "from transformers import BertModel"],
    **{f"nearfar {name}": ["-m", "nearfar", *command.split()] for name, command in COMMANDS.items()},
}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each command in each round."""
    rounds, start_rounds = options.rounds, options.start_rounds
    cases = common.run_interleaved({name: _cost(words) for name, words in CASES.items()}, rounds)
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(Path(folder))  # in this process: a warm-up that compiles and reads most modules
        starts = common.run_interleaved(
            {name: _cost(words, Path(folder)) for name, words in STARTS.items()}, start_rounds, warm_up=0
        )
    content = common.record(rounds=rounds, start_rounds=start_rounds)
    return {**content, "cases": _columns(cases), "starts": _columns(starts)}


def write_inputs(folder: Path) -> None:
    """Write the inputs of the commands, with the tests' functions for tiny models."""
    sys.path.insert(0, str(ROOT))
    tiny, seq2seq = (importlib.import_module(f"tests.{name}") for name in ("tiny", "tiny_seq2seq"))
    tiny.save_tiny(folder / "tiny")
    Classifier.from_pretrained(folder / "tiny", label_names=["warm", "cold"]).save_pretrained(folder / "classifier")
    seq2seq.save_tiny_seq2seq(folder / "there")
    tiny.write_nli(folder / "nli.tsv")
    pairs = tiny.write_pairs(folder / "pairs.tsv")
    evaluate(folder / "tiny", pairs=[str(pairs)], resamples=0, output=folder / "result.json", progress=False)
    texts = tiny.sentences(60)
    rows = [f"{text}\t{('warm', 'cold')[number % 2]}" for number, text in enumerate(texts)]
    (folder / "labelled.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    (folder / "texts.txt").write_text("\n".join(texts[:LINES]) + "\n", encoding="utf-8")


def clear(folder: Path) -> None:
    """Remove the outputs of the commands."""
    for written in folder.glob(f"{OUTPUT}*"):
        if written.is_dir():
            shutil.rmtree(written)
        else:
            written.unlink()


def _cost(words: list[str], folder: Path | None = None) -> Callable[[int], tuple[float, float]]:
    """Wall and processor seconds of a process in ``folder``; its output is removed afterwards."""
    environment = {**os.environ, "PYTHONPATH": str(Path(nearfar.__file__).parents[1]), "HF_HUB_OFFLINE": "1"}

    def cost(_: int) -> tuple[float, float]:
        started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, *words]
        done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, env=environment)
        wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: {done.stderr}")
        if folder is not None:
            clear(folder)
        return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return cost


def _columns(measured: Mapping[str, list[tuple[float, float]]]) -> dict[str, dict[str, list[float]]]:
    return {
        name: {"wall": [one[0] for one in costs], "processor": [one[1] for one in costs]}
        for name, costs in measured.items()
    }


def body(content: dict[str, Any]) -> list[str]:
    """Seconds of the first, the slowest and of no help, and of each verb's start."""
    cases = content["cases"]
    slowest = max(cases, key=lambda name: median(cases[name]["wall"]))
    shown = {name: cases[name] for name in (NOTHING, "import nearfar", "nearfar --help", slowest)}
    rows = [
        (name, common.spread(costs["wall"], digits))
        for of, digits in ((shown, 3), (content["starts"], 2))
        for name, costs in of.items()
    ]
    return common.table(("command", "seconds"), rows)


if __name__ == "__main__":
    starts = common.Sizes("start-rounds", "measured rounds of starts", 3, 1)
    common.main(PAGE, __doc__, measure, body, common.Sizes("rounds", "measured rounds of help", 11, 3), starts)
