"""Labelled texts: a classifier of the trained encoder's embeddings, and its scores on texts it was not trained on.

The classifier is logistic regression on embeddings of length 1, fitted to the training rows and saved with the encoder;
``nearfar predict`` opens it. Beside it stands logistic regression on the encoder that training starts from, fitted to
the same rows (:mod:`nearfar.commands.train.after`).
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nearfar.data.hold_out import FOLDS, TEST, HeldOut
from nearfar.encoder.classifier import EmbeddingClassifier, open_classifier
from nearfar.encoder.encoder import Encoder
from nearfar.evaluation.finetuned import finetuned_entry, finetuned_result
from nearfar.evaluation.plots import confusions
from nearfar.evaluation.results import ClassificationScores, EvaluationResult
from nearfar.evaluation.tables import save_with_tables
from nearfar.runs.held_out import TASK

if TYPE_CHECKING:
    from nearfar.config.training import TrainConfig

RESULT, PICTURE = "labels.json", "labels.png"
GRID = tuple(2.0**power for power in range(-2, 9, 2))
"""The values of C from which cross-validation chooses: scikit-learn's inverse penalty."""
MOST_ROWS = 20_000
"""Number of rows that the classifier is fitted to, about; of more, every n-th and the first of each label."""


def fit_weights(vectors: NDArray[np.float32], labels: NDArray[np.intp]) -> NDArray[np.float32]:
    """The weights [classes, dim + 1] of logistic regression, the bias last. Labels are 0 to classes - 1.

    C has the lowest -log p(label | text) by cross-validation over up to five folds that are stratified by label; it is
    1 if a label has a single row. Two classes have the logits -z/2 and z/2.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    every = -(-len(labels) // MOST_ROWS)
    rows = np.union1d(np.arange(0, len(labels), every), np.unique(labels, return_index=True)[1])
    vectors, labels = vectors[rows].astype(np.float64), labels[rows]
    folds = min(FOLDS, int(np.bincount(labels).min()))
    model = LogisticRegression(max_iter=5000)
    if folds > 1:
        parts = StratifiedKFold(folds, shuffle=True, random_state=0)
        search = GridSearchCV(model, {"C": GRID}, scoring="neg_log_loss", cv=parts, refit=False).fit(vectors, labels)
        model.set_params(**search.best_params_)
    model.fit(vectors, labels)
    weights = np.column_stack([model.coef_, model.intercept_]).astype(np.float32)
    return np.concatenate([-weights / 2, weights / 2]) if len(weights) == 1 else weights


def label_held_out(config: "TrainConfig", held_out: HeldOut, device: str | None) -> EvaluationResult:
    """Label the tested rows by the classifier of a run.

    Raises:
        NearfarError: the model cannot be opened.
    """
    classifier = open_classifier(config.output, device=device)
    assert isinstance(classifier, EmbeddingClassifier)
    outputs = classifier.predict([(text,) for text in held_out.vote(TEST).texts], precision=config.precision)
    entry = label_scores(held_out, outputs, classifier.label_names, config.seed)
    return _result(config, held_out, entry, classifier.encoder, model=config.output)


def label_by_start(
    config: "TrainConfig", held_out: HeldOut, names: Sequence[str], device: str | None
) -> EvaluationResult:
    """Label the rows of each fold by logistic regression on the start, fitted to the rows of the others."""
    start = Encoder.from_pretrained(config.model, max_length=config.max_length, device=device)
    rows = [*held_out.rows, *held_out.training]
    vectors = start.encode([text for text, _ in rows], normalize=True, precision=config.precision)
    labels = np.array([names.index(label) for _, label in rows], dtype=np.intp)
    fold_of = np.array([*held_out.folds, *[0] * len(held_out.training)])
    outputs = np.zeros((len(held_out.rows), len(names)), dtype=np.float32)
    for fold in range(1, 1 + max(held_out.folds)):
        weights = fit_weights(vectors[fold_of != fold], labels[fold_of != fold])
        inside = np.flatnonzero(fold_of == fold)
        outputs[inside] = vectors[inside] @ weights[:, :-1].T + weights[:, -1]
    return _result(config, held_out, label_scores(held_out, outputs, names, config.seed), start, model=config.model)


def label_scores(
    held_out: HeldOut, outputs: NDArray[np.floating], names: Sequence[str], seed: int
) -> ClassificationScores:
    """The scores of ``outputs`` [texts, names] for the tested texts, with confidence intervals."""
    task = held_out.vote(TEST)
    gold = [names.index(label) for label in task.labels]
    texts = [(text,) for text in task.texts]
    entry = finetuned_entry(texts, gold, outputs, label_names=names, seed=[seed, *TASK.encode()])
    assert isinstance(entry, ClassificationScores)
    return entry


def _result(
    config: "TrainConfig", held_out: HeldOut, entry: ClassificationScores, encoder: Encoder, *, model: str
) -> EvaluationResult:
    """The result of ``model``; the texts that ``encoder`` has seen before are counted."""
    texts = [(text,) for text in held_out.vote(TEST).texts]
    how = f"held-out test rows, by a model that was trained on {held_out.training_rows:,} others"
    if held_out.folds:
        how = f"rows in {max(held_out.folds)} folds, each by a model that was trained on the other folds"
    facts, settings = [f"{len(texts):,} {how}"], asdict(config)
    return finetuned_result(
        entry, texts, model=model, task=TASK, settings=settings, facts=facts, dim=encoder.dim, seen=encoder.seen
    )


def save_labels(result: EvaluationResult, folder: Path) -> None:
    """Write the picture of which labels are mistaken for which, and the result, into a run folder."""
    assert result.transfer is not None
    entry = result.transfer.tasks[TASK]
    assert isinstance(entry, ClassificationScores)
    confusions(entry.gold, entry.predicted, entry.classes, folder / PICTURE)
    save_with_tables(result, folder / RESULT)
