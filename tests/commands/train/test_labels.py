"""Labelled texts: folds, the classifier of the embeddings, and the proof of a whole run."""

from pathlib import Path

import numpy as np
import pytest
import scipy.special
from sklearn.linear_model import LogisticRegression

import nearfar
from nearfar.cli import main
from nearfar.commands.compare import compare
from nearfar.commands.train.run import GRID, fit_weights
from nearfar.encoder.classifier import open_classifier
from nearfar.encoder.encoder import Encoder
from nearfar.evaluation.results import ComparisonResult, EvaluationResult
from tests.tiny import save_tiny, write_colours


@pytest.mark.long
@pytest.mark.parametrize("classes", [2, 3])
def test_the_weights_minimise_the_penalised_loss(classes: int) -> None:
    """As scikit-learn does, for one value of the grid; two classes have the logits -z/2 and z/2."""
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(classes, 4))
    labels = np.arange(30) % classes
    vectors = (centres[labels] + rng.normal(scale=1.5, size=(30, 4))).astype(np.float32)
    weights = fit_weights(vectors, labels).astype(np.float64)
    assert weights.shape == (classes, 5)
    if classes == 2:
        assert (weights[0] == -weights[1]).all()
    shares = scipy.special.softmax(np.column_stack([vectors, np.ones(30)]) @ weights.T, axis=1)
    fitted = [LogisticRegression(C=c, max_iter=5000).fit(vectors.astype(np.float64), labels) for c in GRID]
    assert min(np.abs(one.predict_proba(vectors) - shares).max() for one in fitted) < 1e-6


@pytest.mark.long
def test_few_labelled_texts_are_proved_by_folds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearfar.data.hold_out.FOLDS", 3)
    write_colours(tmp_path / "rows.tsv", 40)
    write_colours(tmp_path / "more.tsv", 90)
    Encoder.from_pretrained(save_tiny(tmp_path / "tiny")).save_pretrained(tmp_path / "start")
    model, run = str(tmp_path / "start"), tmp_path / "run"
    flags = ["train", "--data", str(tmp_path / "rows.tsv"), "--model", model, "--output", str(run)]
    flags += ["--learning-rate", "1e-2", "--epochs", "4"]
    assert main(flags) == 0
    printed = capsys.readouterr().out
    assert f"Which labels are mistaken for which: {run}/labels.png" in printed
    assert (run / "labels.png").read_bytes()[:4] == b"\x89PNG"

    result = EvaluationResult.load(run / "labels.json")
    entry = result.transfer.tasks["held-out"]
    assert (entry.rows, entry.classes) == (40, ["cold", "warm"])
    assert entry.accuracy.score > 80
    comparison = ComparisonResult.load(run / "held_out" / "before-after.json")
    row = comparison.tasks["held-out"]
    assert (row.first, row.pairs) == (pytest.approx(entry.accuracy.score, abs=0.01), 40)
    assert row.first > row.second
    again = compare(run, model, held_out=True, progress=False)
    assert (again.tasks, again.sides[0].folds) == (comparison.tasks, 3)

    output = tmp_path / "labels.tsv"
    scores = nearfar.predict(str(run), input=str(tmp_path / "more.tsv"), output=str(output), progress=False).scores
    assert scores.transfer.tasks["more.tsv"].accuracy.score > 80

    assert main([*flags, "--resume"]) == 0
    assert "fold 1" not in capsys.readouterr().out


@pytest.mark.nightly
def test_more_rows_are_proved_by_the_held_out_ones(tmp_path: Path) -> None:
    write_colours(tmp_path / "rows.tsv", 1000)
    model = str(save_tiny(tmp_path / "tiny"))
    settings = {"data": str(tmp_path / "rows.tsv"), "model": model, "max_steps": 2}
    trained = nearfar.train(output=str(tmp_path / "run"), **settings)
    entry = trained.labels.transfer.tasks["held-out"]
    assert 0 < entry.rows <= 200
    assert trained.comparison.tasks["held-out"].pairs == entry.rows  # by a vote of neighbours, as in nearfar compare
    none = nearfar.train(output=str(tmp_path / "none"), hold_out=0, **settings)
    assert (none.labels, none.comparison) == (None, None)
    assert open_classifier(tmp_path / "none").label_names == ("cold", "warm")
