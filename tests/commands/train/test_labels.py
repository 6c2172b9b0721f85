"""Labelled texts: folds, the classifier of the embeddings, and the proof of a whole run."""

import random
from pathlib import Path

import numpy as np
import pytest
import scipy.special

import nearfar
from nearfar.cli import main
from nearfar.commands.compare import compare
from nearfar.commands.train.run import GRID, fit_weights
from nearfar.encoder.classifier import open_classifier
from nearfar.encoder.encoder import Encoder
from nearfar.evaluation.results import ComparisonResult, EvaluationResult
from tests.tiny import WORDS, save_tiny

WORDS_OF = {"fruit": ("apple", "ball"), "pet": ("dog", "cat")}
NEUTRAL = [word for word in WORDS if not any(word in words for words in WORDS_OF.values())]


def write_labelled(file: Path, count: int, *, seed: int = 0) -> list[tuple[str, str]]:
    """Texts with a word of their label."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        label = ("fruit", "pet")[number % 2]
        words = [*draw.choices(NEUTRAL, k=draw.randint(2, 6)), draw.choice(WORDS_OF[label])]
        rows.append((" ".join(draw.sample(words, len(words))), label))
    file.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    return rows


@pytest.mark.long
@pytest.mark.parametrize("classes", [2, 3])
def test_the_weights_minimise_the_penalised_loss(classes: int) -> None:
    """C sum -log p + |W|^2 / 2, with one vector for two classes; for one value of the grid it is stationary."""
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(classes, 4))
    labels = np.arange(30) % classes
    vectors = (centres[labels] + rng.normal(scale=1.5, size=(30, 4))).astype(np.float32)
    weights = fit_weights(vectors, labels).astype(np.float64)
    assert weights.shape == (classes, 5)
    if classes == 2:
        assert (weights[0] == -weights[1]).all()
    matrix = np.column_stack([vectors.astype(np.float64), np.ones(30)])
    shares = scipy.special.softmax(matrix @ weights.T, axis=1)
    gradient = (shares - np.eye(classes)[labels]).T @ matrix
    penalty = weights[:, :-1] * (2 if classes == 2 else 1)  # of the one vector, twice that of a class
    best = min(np.abs(C * gradient[:, :-1] + penalty).max() / np.abs(penalty).max() for C in GRID)
    assert best < 0.02
    assert np.abs(gradient[:, -1]).max() < 0.02
    assert np.abs(penalty).max() > 0.1


@pytest.mark.long
def test_few_labelled_texts_are_proved_by_folds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearfar.data.hold_out.FOLDS", 3)
    rows = write_labelled(tmp_path / "rows.tsv", 40)
    write_labelled(tmp_path / "more.tsv", 30, seed=1)
    Encoder.from_pretrained(save_tiny(tmp_path / "tiny")).save_pretrained(tmp_path / "start")
    model, run = str(tmp_path / "start"), tmp_path / "run"
    flags = ["train", "--data", str(tmp_path / "rows.tsv"), "--model", model, "--output", str(run)]
    flags += ["--learning-rate", "1e-2", "--epochs", "4"]
    assert main(flags) == 0
    printed = capsys.readouterr().out
    assert "fold 3 of 3" in printed
    assert "40 rows in 3 folds, each by a model that was trained on the other folds" in printed
    assert f"Which labels are mistaken for which: {run}/labels.png" in printed
    assert f"nearfar predict {run} --input FILE --output labels.csv" in printed
    assert (run / "labels.png").read_bytes()[:4] == b"\x89PNG"

    result = EvaluationResult.load(run / "labels.json")
    entry = result.transfer.tasks["held-out"]
    assert (entry.rows, entry.classes) == (len(rows), ["fruit", "pet"])
    assert entry.accuracy.score > 80
    comparison = ComparisonResult.load(run / "held_out" / "before-after.json")
    row = comparison.tasks["held-out"]
    assert (row.first, row.pairs) == (pytest.approx(entry.accuracy.score, abs=0.01), len(rows))
    assert row.first > row.second
    assert f"Accuracy x 100 on {len(rows)} rows, tested in 3 folds" in printed
    again = compare(run, model, held_out=True, progress=False)
    assert (again.tasks, again.sides[0].folds) == (comparison.tasks, 3)

    classifier = open_classifier(run)
    assert classifier.label_names == ("fruit", "pet")
    output = tmp_path / "labels.tsv"
    scores = nearfar.predict(str(run), input=str(tmp_path / "more.tsv"), output=str(output), progress=False).scores
    assert scores.transfer.tasks["more.tsv"].accuracy.score > 80

    assert main([*flags, "--resume"]) == 0
    assert "fold 1" not in capsys.readouterr().out


@pytest.mark.nightly
def test_more_rows_are_proved_by_the_held_out_ones(tmp_path: Path) -> None:
    write_labelled(tmp_path / "rows.tsv", 1000)
    model = str(save_tiny(tmp_path / "tiny"))
    settings = {"data": str(tmp_path / "rows.tsv"), "model": model, "max_steps": 2}
    trained = nearfar.train(output=str(tmp_path / "run"), **settings)
    entry = trained.labels.transfer.tasks["held-out"]
    assert 0 < entry.rows <= 200
    assert trained.comparison.tasks["held-out"].pairs == entry.rows  # by a vote of neighbours, as in nearfar compare
    none = nearfar.train(output=str(tmp_path / "none"), hold_out=0, **settings)
    assert (none.labels, none.comparison) == (None, None)
    assert open_classifier(tmp_path / "none").label_names == ("fruit", "pet")
