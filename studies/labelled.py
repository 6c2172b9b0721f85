"""Few labelled texts: `nearfar train --data` beside SetFit's recipe and frozen embeddings, on TREC and CR.

    python studies/labelled.py run       does what is missing from studies/results/labelled, with one thread
    python studies/labelled.py report    fills the table of docs/guides/classify.md from the result files only

A sample has as many rows of each label, drawn at random by its number; each method trains on it in turn. The recipe of
SetFit (Tunstall et al. 2022, as its library ran it): for each text 20 pairs with a text of its label and 20 with one of
another label, sentence-transformers' CosineSimilarityLoss, one epoch of batches of 16 at 2e-5, and LogisticRegression
of scikit-learn on the embeddings. Seconds are of opening the model, training, and fitting the classifier.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import torch
from common import ROOT, filled, load, results_of, spread, table
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

import nearfar
from nearfar.commands.train.run import fit_weights
from nearfar.data.labelled import load_transfer
from nearfar.disk import write_text
from nearfar.encoder.weights import locate
from nearfar.evaluation.results import provenance

RESULTS = results_of("labelled")
GUIDE = ROOT / "docs" / "guides" / "classify.md"
START = "sentence-transformers/all-MiniLM-L6-v2"
SETS = {"trec": "TREC", "cr": "CR"}
SIZES, SAMPLES, TESTED = (8, 16, 32), (1, 2, 3, 4, 5), 500
PAIRS, BATCH, RATE = 20, 16, 2e-5
Rows = list[tuple[str, str]]


class Sample(NamedTuple):
    """Rows to train on, and rows to test on, each a text and its label."""

    number: int
    train: Rows
    test: Rows


def main() -> None:
    """Run or report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("run", "report"))
    if parser.parse_args().command == "run":
        RESULTS.mkdir(parents=True, exist_ok=True)
        torch.set_num_threads(1)
        for number in SAMPLES:
            for size in SIZES:
                for name in SETS:
                    if not (file := file_of(name, size, number)).exists():
                        write_text(file, json.dumps(_run(name, size, number), indent=1) + "\n")
    report()


def file_of(name: str, size: int, number: int) -> Path:
    """Return the path of a result file."""
    return RESULTS / f"{name}-{size}-{number}.json"


def _run(name: str, size: int, number: int) -> dict[str, Any]:
    sample = draw(name, size, number)
    methods = {"frozen": frozen, "nearfar": train, "setfit": setfit}
    shown = [f"{name}, {size} rows a label, sample {number}:"]
    scores = {}
    for method, run in methods.items():
        scores[method] = _score(run, sample)
        shown.append(f"{method} {scores[method]['accuracy']} in {scores[method]['processor_seconds']} s")
    print(*shown, flush=True)
    settings = {"pairs": PAIRS, "batch_size": BATCH, "learning_rate": RATE, "epochs": 1}
    return {
        **provenance().to_dict(),
        "config": {"model": START, "set": name, "rows_of_a_label": size, "sample": number, "setfit": settings},
        "rows": {"train": len(sample.train), "test": len(sample.test)},
        "methods": scores,
    }


def draw(name: str, size: int, number: int) -> Sample:
    """The rows of a sample: TREC's test rows, or rows of CR that are not in the sample."""
    task = load_transfer(name)
    parts = {
        part: [(text, task.label_names[int(label)]) for (text,), label in zip(*rows, strict=True)]
        for part, rows in task.splits.items()
    }
    rows = parts.get("train", parts.get("all", []))
    chance = random.Random(f"{name} {size} {number}")
    train = [row for label in task.label_names for row in chance.sample([r for r in rows if r[1] == label], size)]
    known = {text for text, _ in train}
    tested = [row for row in parts.get("test", rows) if row[0] not in known]
    return Sample(number, train, chance.sample(tested, min(TESTED, len(tested))))


def _score(run: Callable[[Sample], tuple[float, float, Sequence[str]]], sample: Sample) -> dict[str, float]:
    seconds, processor, predicted = run(sample)
    gold = [label for _, label in sample.test]
    return {
        "accuracy": round(100 * float(np.mean(np.array(gold) == np.array(predicted))), 2),
        "macro_f1": round(100 * f1_score(gold, predicted, average="macro"), 2),
        "seconds": round(seconds, 2),
        "processor_seconds": round(processor, 2),
    }


def frozen(sample: Sample) -> tuple[float, float, list[str]]:
    """Logistic regression on the embeddings of the start, C by cross-validation."""
    clock = _Clock()
    encoder = nearfar.Encoder.from_pretrained(START, device="cpu")
    names = sorted({label for _, label in sample.train})
    labels = np.array([names.index(label) for _, label in sample.train])
    weights = fit_weights(_embed(encoder, sample.train), labels)
    spent = clock.read()
    best = (_embed(encoder, sample.test) @ weights[:, :-1].T + weights[:, -1]).argmax(axis=1)
    return *spent, [names[label] for label in best]


def _embed(encoder: nearfar.Encoder, rows: Rows) -> np.ndarray:
    return encoder.encode([text for text, _ in rows], normalize=True, precision="fp32")


def train(sample: Sample) -> tuple[float, float, list[str]]:
    """`nearfar train --data sample.tsv --hold-out 0`, then `nearfar predict`."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for part, rows in (("train", sample.train), ("test", sample.test)):
            write_text(folder / f"{part}.tsv", "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
        clock, run = _Clock(), folder / "run"
        settings = {"precision": "fp32", "device": "cpu", "seed": sample.number}
        nearfar.train(data=str(folder / "train.tsv"), model=START, output=str(run), hold_out=0, **settings)
        spent = clock.read()
        output, choices = folder / "labels.jsonl", {"precision": "fp32", "device": "cpu"}
        nearfar.predict(run, input=str(folder / "test.tsv"), output=str(output), progress=False, **choices)
        lines = output.read_text(encoding="utf-8").splitlines()
        return *spent, [json.loads(line)["predicted_label"] for line in lines]


def setfit(sample: Sample) -> tuple[float, float, list[str]]:
    """SetFit's recipe, by sentence-transformers and scikit-learn."""
    clock = _Clock()
    model = SentenceTransformer(str(locate(START)), device="cpu", model_kwargs={"dtype": "float32"})
    with tempfile.TemporaryDirectory() as scratch:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=scratch,
            num_train_epochs=1,
            per_device_train_batch_size=BATCH,
            learning_rate=RATE,
            warmup_steps=0.1,
            use_cpu=True,
            seed=sample.number,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
        )
        loss = losses.CosineSimilarityLoss(model)
        SentenceTransformerTrainer(model=model, args=arguments, train_dataset=_pairs(sample), loss=loss).train()
    head = LogisticRegression(max_iter=1000)
    head.fit(model.encode([text for text, _ in sample.train]), [label for _, label in sample.train])
    spent = clock.read()
    return *spent, head.predict(model.encode([text for text, _ in sample.test])).tolist()


def _pairs(sample: Sample) -> Dataset:
    chance, rows = random.Random(sample.number), sample.train
    columns: dict[str, list[Any]] = {"first": [], "second": [], "label": []}
    for text, label in rows * PAIRS:
        for score in (1.0, 0.0):
            columns["first"].append(text)
            columns["second"].append(chance.choice([other for other, own in rows if (own == label) == bool(score)]))
            columns["label"].append(score)
    return Dataset.from_dict(columns)


class _Clock:
    def __init__(self) -> None:
        self.seconds, self.processor = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self.seconds, time.process_time() - self.processor


def report() -> None:
    """Fill the table of the guide."""
    write_text(GUIDE, filled(GUIDE.read_text(encoding="utf-8"), "few labelled texts", _lines(), GUIDE))


def _lines() -> list[str]:
    files = sorted(RESULTS.glob("*.json"))
    found = [load(file) for file in files]
    rows = []
    for name, title in SETS.items():
        for size in SIZES:
            own = [one for one in found if (one["config"]["set"], one["config"]["rows_of_a_label"]) == (name, size)]
            if own:
                rows.append([title, f"{size}", f"{own[0]['rows']['train']}", f"{len(own)}", *_cells(own)])
    header = ["set", "rows a label", "rows", "samples", "frozen", "`nearfar train`", "SetFit's recipe"]
    header += ["seconds, `nearfar train`", "seconds, SetFit's recipe"]
    commits = sorted({one["commit"] for one in found})
    return [
        *table(header, rows),
        "",
        "Accuracy on up to 500 test rows: mean (standard deviation) over samples. Processor seconds with one thread.",
        f"By `python studies/labelled.py report` from `studies/results/labelled`. Commit {', '.join(commits)}.",
        f"Versions: {json.dumps(found[0]['versions'])}. Hardware: {json.dumps(found[0]['hardware'])}.",
    ]


def _cells(own: Sequence[dict[str, Any]]) -> list[str]:
    def values(method: str, key: str) -> list[float]:
        return [one["methods"][method][key] for one in own]

    scores = [spread(values(method, "accuracy")) for method in ("frozen", "nearfar", "setfit")]
    return [*scores, *(f"{mean(values(method, 'processor_seconds')):.0f}" for method in ("nearfar", "setfit"))]


if __name__ == "__main__":
    main()
