"""A minimal input and command line for each command, for ``benchmarks/help.py``: tiny encoders and few rows.

The output of each command is removed after the command.
"""

import importlib
import shutil
import sys
from pathlib import Path

from common import MODEL, ROOT

from nearfar.commands.evaluate import evaluate
from nearfar.encoder.classifier import Classifier

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
