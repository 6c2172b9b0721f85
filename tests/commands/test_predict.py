"""A file of texts or pairs -> labels and probabilities: every format, row order, and errors."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from nearfar import NearfarError
from nearfar.commands.predict import predict
from nearfar.encoder.classifier import Classifier
from tests.encoder.tiny_pairs import save_tiny_for_pairs
from tests.tiny import sentences

LABELS = ("no", "may be", "yes")
TEXTS = [*sentences(6, seed=1), "a dog", 'the "big" cat, and a dog', "a dog", "the   cat"]
NORMALIZED = [" ".join(text.split()) for text in TEXTS]
OTHERS = sentences(len(TEXTS), seed=2)


def save(folder: Path, **settings: object) -> str:
    """A classifier whose outputs differ between texts."""
    torch.manual_seed(3)
    classifier = Classifier.from_pretrained(save_tiny_for_pairs(folder), **settings)
    with torch.no_grad():
        classifier.model.classifier.weight.mul_(60)
    classifier.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save(tmp_path_factory.mktemp("classifier"), label_names=LABELS)


def predicted(folder: str, *texts: list[str]) -> np.ndarray:
    """Probabilities of each row, computed one at a time with transformers."""
    theirs = AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        logits = [theirs(**tokenizer(*row, return_tensors="pt")).logits[0] for row in zip(*texts, strict=True)]
    return torch.stack(logits).softmax(dim=1).numpy()


def read(file: Path) -> list[dict[str, str]]:
    """The rows of an output of any format, as strings."""
    if file.suffix == ".jsonl":
        return [{k: str(v) for k, v in json.loads(line).items()} for line in file.read_text().splitlines()]
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="," if file.suffix == ".csv" else "\t"))


def assert_labelled(file: Path, expected: np.ndarray, **texts: list[str]) -> None:
    rows = read(file)
    names = ["p_no", "p_may be", "p_yes"]
    assert list(rows[0]) == [*texts, "label", *names]
    for column, values in texts.items():
        assert [row[column] for row in rows] == values
    shares = np.array([[float(row[name]) for name in names] for row in rows])
    assert np.abs(shares.sum(axis=1) - 1).max() < 2e-6
    assert np.ptp(shares, axis=0).max() > 0.2
    assert len({row["label"] for row in rows}) > 1
    np.testing.assert_allclose(shares, expected, atol=1e-5)
    assert [row["label"] for row in rows] == [LABELS[best] for best in shares.argmax(axis=1)]


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl"])
def test_each_line_of_a_text_file_gets_a_row(model: str, suffix: str, tmp_path: Path) -> None:
    lines = [*TEXTS, "", "the cat", " \x0b ", "\x00", "a red ball", ""]
    (tmp_path / "texts.txt").write_bytes("\r\n".join([*lines, ""]).encode())
    output = tmp_path / f"labels{suffix}"
    result = predict(model, input=tmp_path / "texts.txt", output=output, progress=False)
    assert (result.rows, result.scores) == (len(lines), None)
    tidy = [*NORMALIZED, "", "the cat", "", "", "a red ball", ""]
    assert_labelled(output, predicted(model, tidy), text=tidy)


@pytest.mark.long
def test_columns_of_tables(model: str, tmp_path: Path) -> None:
    rows = list(zip(TEXTS, OTHERS, strict=True))
    (tmp_path / "one.tsv").write_text("id\ttext\n" + "".join(f"7\t{text}\n" for text in TEXTS))
    predict(model, input=tmp_path / "one.tsv", output=tmp_path / "one.jsonl", progress=False)
    sevens = ["7"] * len(TEXTS)
    assert_labelled(tmp_path / "one.jsonl", predicted(model, NORMALIZED), id=sevens, text=NORMALIZED)

    lines = [json.dumps({"question": a, "answer": b, "text": "not this one"}) for a, b in rows]
    (tmp_path / "named.jsonl").write_text("\n".join(lines))
    settings = {"text_columns": ("question", "answer"), "progress": False}
    predict(model, input=tmp_path / "named.jsonl", output=tmp_path / "named.tsv", **settings)
    shown = {"question": NORMALIZED, "answer": OTHERS, "text": ["not this one"] * len(TEXTS)}
    assert_labelled(tmp_path / "named.tsv", predicted(model, NORMALIZED, OTHERS), **shown)


@pytest.mark.long
def test_other_columns_are_kept_and_labels_are_scored(model: str, tmp_path: Path) -> None:
    """A label that the classifier does not have is an error of it; a row without a label is left out."""
    best = [LABELS[place] for place in predicted(model, NORMALIZED).argmax(axis=1)]
    labels = ["maybe not", "", *best[2:]]
    rows = [
        {"id": {"n": place}, "text": text, "label": label, "p_yes": None} | ({"more": 1.5} if place == 3 else {})
        for place, (text, label) in enumerate(zip(TEXTS, labels, strict=True))
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = predict(model, input=tmp_path / "in.jsonl", output=tmp_path / "out.jsonl", progress=False)
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    names = ["id", "text", "label", "p_yes", "more", "predicted_label", "p_no", "p_may be", "predicted_p_yes"]
    assert [list(row) for row in found] == [names] * len(rows)
    assert [row["label"] for row in found] == labels
    assert [row["more"] for row in found] == [1.5 if place == 3 else None for place in range(len(rows))]
    assert [row["predicted_label"] for row in found] == best
    entry = result.scores.transfer.tasks["in.jsonl"]
    assert entry.classes == [*LABELS, "(another label)"]
    assert (entry.rows, entry.accuracy.score) == (len(rows) - 1, round(100 * (len(rows) - 2) / (len(rows) - 1), 4))
    assert result.scores.config["data"] == ["1 rows have a label that the classifier does not have"]

    (tmp_path / "stars.csv").write_text("text,stars\n" + "".join(f'"{n}\ta dog",{n}.5\n' for n in range(1, 5)))
    scores = save(tmp_path / "scores", label_names=())
    settings = {"label_column": "stars", "progress": False}
    result = predict(scores, input=tmp_path / "stars.csv", output=tmp_path / "out.tsv", **settings)
    assert result.scores.transfer.tasks["stars.csv"].gold == [1.5, 2.5, 3.5, 4.5]
    assert [row["stars"] for row in read(tmp_path / "out.tsv")] == ["1.5", "2.5", "3.5", "4.5"]


@pytest.mark.long
def test_a_run_knows_its_columns(model: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    (tmp_path / "run" / "config.toml").write_text('text_column = "Ticket"\nlabel_column = "Kind"\n')
    shutil.copytree(model, tmp_path / "run" / "model")
    (tmp_path / "in.tsv").write_text("Id\tTicket\tKind\n1\ta dog\tno\n2\ta cat\tyes\n")
    result = predict(tmp_path / "run", input=str(tmp_path / "in.tsv"), output=str(tmp_path / "a.tsv"), progress=False)
    assert result.scores is not None


@pytest.mark.long
def test_mistakes(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("a dog\n")
    Path("empty.txt").write_text("\n \n")
    Path("table.tsv").write_text("id\tphrase\n1\ta dog\n")
    save_tiny_for_pairs(tmp_path / "encoder")

    def refuse(message: str, source: str, folder: str = model, **settings: object) -> None:
        with pytest.raises(NearfarError, match=message):
            predict(folder, input=source, output="out.tsv", progress=False, **settings)
        assert not Path("out.tsv").exists()

    refuse(r"empty\.txt: holds no texts", "empty.txt")
    refuse(r"no column 'text'. Its columns: id, phrase", "table.tsv")
    refuse("--text-columns a b c: give one column, or two", "table.tsv", text_columns=("a", "b", "c"))
    refuse(r"texts\.txt has one text per line, and no columns", "texts.txt", text_columns=("text",))
    refuse("holds no classifier", "texts.txt", folder=str(tmp_path / "encoder"))
