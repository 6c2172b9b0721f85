"""The example of docs/guides/train.md on three kinds of rows: each command as a user runs it, with time and result.

    python studies/own_data.py run       does what is missing from studies/results/own-data
    python studies/own_data.py report    fills the table of the guide from the result files only

`run` needs NEARFAR_DATA to make plain TSV files in a temporary folder. The commands run there, without NEARFAR_DATA and
without the network, each with one thread.
"""

import argparse
import csv
import json
import os
import shlex
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common import ROOT, filled, interval, load, nearfar, results_of, table

from nearfar.disk import write_text
from nearfar.evaluation.results import ComparisonResult, provenance
from nearfar.evaluation.statistics import verdict
from nearfar.types import metric_title

RESULTS = results_of("own-data")
GUIDE = ROOT / "docs" / "guides" / "train.md"
BASE = "sentence-transformers/all-MiniLM-L6-v2"
Rows = list[dict[str, str]]


class Example(NamedTuple):
    """A file of rows, and what is done with it."""

    title: str
    source: str
    make: Callable[[Rows], list[tuple[str, ...]]]
    """Header and rows of the file, from the rows of the source."""
    column: str
    """The column that is searched and shown on the page."""
    file: str
    train: tuple[str, ...] = ()
    query: str | None = None
    color_by: str | None = None


def captions(rows: Rows) -> list[tuple[str, ...]]:
    """Two captions of each photo."""
    photos: dict[str, list[str]] = {}
    for row in rows:
        photos.setdefault(row["image"], []).append(row["caption"])
    return [("anchor", "positive"), *((texts[0], texts[1]) for texts in photos.values() if len(texts) > 1)]


def entailments(rows: Rows) -> list[tuple[str, ...]]:
    """NLI rows of SICK's pairs."""
    pairs = ((row["sentence1"], row["sentence2"], row["label"].lower()) for row in rows)
    return [("premise", "hypothesis", "label"), *pairs]


def questions(rows: Rows) -> list[tuple[str, ...]]:
    """Texts with a label."""
    return [("text", "label"), *((row["text"], row["label"]) for row in rows)]


EXAMPLES = {
    "sick": Example(
        "SICK, 4,500 NLI rows",
        "sts/SICK/train.tsv",
        entailments,
        "hypothesis",
        "sick.tsv",
        ("--hold-out", "200"),
        "someone is making food",
        "label",
    ),
    "trec": Example(
        "TREC, questions with a label", "senteval/TREC/train.tsv", questions, "text", "questions.tsv", color_by="label"
    ),
    "captions": Example(
        "flickr8k, two captions of each photo",
        "text/flickr8k_captions.tsv",
        captions,
        "positive",
        "captions.tsv",
        query="a dog jumps into the water",
    ),
}


def main() -> None:
    """Run or report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("run", "report"))
    parser.add_argument("--examples", nargs="*", choices=EXAMPLES, default=list(EXAMPLES), help="by default all")
    options = parser.parse_args()
    if options.command == "run":
        RESULTS.mkdir(parents=True, exist_ok=True)
        for name in options.examples:
            if not file_of(name).exists():
                write_text(file_of(name), json.dumps(_run(EXAMPLES[name]), indent=1) + "\n")
    report()


def file_of(name: str) -> Path:
    """Return the path of the result file of an example."""
    return RESULTS / f"{name}.commands.json"


def _run(example: Example) -> dict[str, Any]:
    """Make the file, run all commands in a temporary folder, and return what they took and found."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with (Path(os.environ["NEARFAR_DATA"]) / example.source).open(encoding="utf-8", newline="") as lines:
            rows = example.make(list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)))
        write_text(folder / example.file, "".join("\t".join(cells) + "\n" for cells in rows))
        done = [_call(command, folder) for command in _commands(example)]
        run = folder / "runs" / Path(example.file).stem
        info = load(run / "run.json")
        return {
            **provenance().to_dict(),
            "file": {"name": example.file, "columns": list(rows[0]), "rows": len(rows) - 1},
            "seed": info["config"]["seed"],
            "method": tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))["method"],
            "commands": done,
            "before_after": ComparisonResult.load(run / "held_out" / "before-after.json").to_dict(),
            "compare": ComparisonResult.load(folder / "comparison.json").to_dict(),
        }


def _commands(example: Example) -> list[list[str]]:
    run = f"runs/{Path(example.file).stem}"
    commands = [
        ["train", "--data", example.file, *example.train, "--output", run],
        ["compare", run, BASE, "--held-out", "--output", "comparison.json"],
    ]
    if example.query:
        model = f"{run}/model"
        commands.append(
            ["search", "--model", model, "--input", example.file, "--column", example.column, example.query]
        )
    color = ["--color-by", example.color_by] if example.color_by else []
    page = [*color, "--texts-limit", "1000", "--page", "page.html"]
    return [*commands, ["geometry", BASE, run, "--texts", example.file, "--column", example.column, *page]]


def _call(command: Sequence[str], folder: Path) -> dict[str, Any]:
    """Run a command without data and network; what it took."""
    env = {name: value for name, value in os.environ.items() if name != "NEARFAR_DATA"}
    env |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return {"command": shlex.join(["nearfar", *command]), **nearfar(*command, environment=env, folder=folder)}


def report() -> None:
    """Fill the table of the guide."""
    write_text(GUIDE, fill(GUIDE.read_text(encoding="utf-8")))


def fill(text: str) -> str:
    """Replace what is between ``<!-- result -->`` and ``<!-- end of result -->`` by the table."""
    examples = {name: load(file_of(name)) for name in EXAMPLES}
    header = ["rows", "method", "measure x 100", "tested", "before", "after", "difference [95%]", "verdict"]
    lines = table(header, [_result(EXAMPLES[name].title, one) for name, one in examples.items()])
    return filled(text, "result", lines, GUIDE)


def _result(title: str, example: dict[str, Any]) -> list[str]:
    row = example["before_after"]["tasks"]["held-out"]
    measure = metric_title(row["measure"]) if "measure" in row else "accuracy"
    scores = [f"{row['second']:.2f}", f"{row['first']:.2f}", interval(row), verdict(row["low"], row["high"])]
    return [title, f"`{example['method']}`", measure, f"{row['pairs']:,}", *scores]


if __name__ == "__main__":
    main()
