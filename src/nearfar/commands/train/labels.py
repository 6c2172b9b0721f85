"""Labelled texts: a classifier of the trained encoder's embeddings, and its proof on texts that it was not trained on.

The classifier is logistic regression on embeddings of length 1, fitted to the training rows and saved with the encoder;
``nearfar predict`` opens it. Few rows (:data:`nearfar.commands.train.recipes.FEW_LABELLED`) are all trained on, and the
proof trains again without each of :data:`FOLDS` folds, whose texts it then labels; beside it stands logistic regression
on the encoder that training starts from, fitted to the same rows. Of more rows the held-out ones are the proof.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearfar.data.fingerprints import combine_hashes, text_hashes
from nearfar.data.hold_out import SEED, TEST
from nearfar.disk import write_text
from nearfar.encoder.classifier import HEAD_FILE, EmbeddingClassifier, open_classifier
from nearfar.encoder.encoder import Encoder
from nearfar.evaluation.comparison import EvaluationRun, compare_runs
from nearfar.evaluation.finetuned import finetuned_entry, finetuned_result
from nearfar.evaluation.plots import confusions
from nearfar.evaluation.results import ClassificationScores, ComparisonResult, EvaluationResult
from nearfar.evaluation.tables.pages import save_with_tables
from nearfar.methods.gunel import SupconTextConfig, read_rows
from nearfar.runs.folder import HELD_OUT, read_run_info
from nearfar.runs.held_out import COMPARISON, TASK, has_held_out, load_held_out
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.config.training import TrainConfig
    from nearfar.runs.run import ProcessContext

RESULT, PICTURE = "labels.json", "labels.png"
FOLDS = 5
GRID = tuple(2.0**power for power in range(-2, 9, 2))
"""The values of C from which cross-validation chooses: scikit-learn's inverse penalty."""
MOST_ROWS = 20_000
"""Number of rows that the classifier is fitted to, about; of more, every n-th and the first of each label."""
RESAMPLES = 10_000
Train: TypeAlias = "Callable[[TrainConfig], object]"


class LabelProof(NamedTuple):
    """What the proof of a run on labelled texts found."""

    result: EvaluationResult
    """The classifier on the tested texts; each prediction is by a model that was not trained on the text."""
    comparison: ComparisonResult | None
    """Beside logistic regression on the start; None where rows are held out."""


class _Part(NamedTuple):
    """A run that is trained, the labelled texts that it was trained on, and those that it is tested on."""

    run: Path
    texts: Sequence[str]
    labels: Sequence[str]
    tested: Sequence[str]
    gold: Sequence[str]


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


def prove_labels(config: "TrainConfig", context: "ProcessContext", train: Train) -> LabelProof | None:
    """Test the finished run of ``config``, and write ``labels.json``, a picture and the comparison into its folder.

    The files are read where they exist. ``train`` trains the run of a config. None if the run has no classifier, or
    tests nothing (``--hold-out 0``).

    Raises:
        NearfarError: a fold cannot be trained, a model cannot be opened, or a file cannot be written.
        nearfar.training.trainer.Interrupted: after Ctrl-C; the run itself is finished.
    """
    folder, first = Path(config.output), context.processes.broadcast_from_first
    comparison = folder / HELD_OUT / COMPARISON
    has_head, held_out, done = first(
        lambda: ((folder / "model" / HEAD_FILE).exists(), has_held_out(folder), (folder / RESULT).is_file())
    )
    if not has_head or not isinstance(config, SupconTextConfig):
        return None
    if done:
        stored = None if held_out else first(lambda: ComparisonResult.load(comparison))
        return LabelProof(first(lambda: EvaluationResult.load(folder / RESULT)), stored)
    config = replace(config, precision=first(lambda: read_run_info(folder)["precision"]))
    if held_out:
        return first(lambda: _test_held_out(config, context))
    if config.hold_out is not None or config.evaluate_on is not None or config.second is not None:
        return None
    return _test_folds(config, context, train)


def _test_held_out(config: SupconTextConfig, context: "ProcessContext") -> LabelProof:
    """Label the test part of the held-out rows."""
    held_out = load_held_out(config.output)
    task, classifier = held_out.vote(TEST), open_classifier(config.output, device=context.device)
    assert isinstance(classifier, EmbeddingClassifier)
    names, texts = classifier.label_names, [(text,) for text in task.texts]
    logits = classifier.predict(texts, precision=config.precision)
    how = f"held-out test rows, by a model that was trained on {held_out.training_rows:,} others"
    gold = [names.index(label) for label in task.labels]
    encoder = classifier.encoder
    result = _score(config, texts, gold, logits, model=config.output, names=names, how=how, encoder=encoder)
    _save(result, Path(config.output))
    return LabelProof(result, None)


def _train_folds(config: SupconTextConfig, context: "ProcessContext", train: Train) -> Iterator[_Part]:
    """Train without each fold, in a run folder that is removed afterwards. All processes train together."""
    data = read_rows(config)
    texts, labels = np.array([text for (text,) in data.rows], dtype=np.object_), np.array(data.targets, dtype=np.intp)
    named, folds = np.array(data.label_names, dtype=np.object_)[labels], assign_folds(texts.tolist(), labels)
    scratch = Path(config.output) / "fold"
    for fold in range(FOLDS):
        inside, outside = folds == fold, folds != fold
        if not inside.any():
            continue
        context.console.print(f"fold {fold + 1} of {FOLDS}", highlight=False)
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        rows = zip(texts[outside], named[outside], strict=True)
        lines = (json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
        write_text(scratch / "rows.jsonl", "".join(lines))
        size = min(config.batch_size, len(set(texts[outside])) // context.processes.size)
        run = replace(
            config,
            data=(str(scratch / "rows.jsonl"),),
            text_column="text",
            label_column="label",
            limit=None,
            output=str(scratch / "run"),
            hold_out=0,
            batch_size=size,
        )
        train(run)
        yield _Part(scratch / "run", texts[outside], named[outside], texts[inside], named[inside])
    shutil.rmtree(scratch, ignore_errors=True)


def assign_folds(texts: Sequence[str], labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """The fold of each row, from 0 on; -1 for rows that are always trained on. It depends on texts and labels alone.

    Folds have equally many texts of each label, up to one. Equal texts (:mod:`nearfar.data.fingerprints`) are in one
    fold. Outside of a fold, each of its labels has two texts or more, which contrastive training needs.
    """
    hashes, first, group = np.unique(text_hashes(texts), return_index=True, return_inverse=True)
    keys = combine_hashes(hashes, np.full(len(hashes), SEED, dtype=np.uint64))
    folds = np.empty(len(hashes), dtype=np.intp)
    folds[np.lexsort((keys, labels[first]))] = np.arange(len(hashes)) % FOLDS
    for label in np.unique(labels):
        own = np.unique(group[labels == label])
        for fold in range(FOLDS):
            inside = own[folds[own] == fold]
            if len(own) - len(inside) < 2:
                folds[inside] = -1
    return folds[group]


def _label(part: _Part, config: "TrainConfig", start: Encoder) -> tuple[tuple[str, ...], NDArray[np.float32]]:
    """The label names; the logits of the tested texts by the classifier and by one on the start [2, texts, names]."""
    classifier = open_classifier(part.run, device=str(start.device))
    names = classifier.label_names
    vectors = start.encode([*part.texts, *part.tested], normalize=True, precision=config.precision)
    weights = fit_weights(vectors[: len(part.texts)], np.array([names.index(label) for label in part.labels]))
    before = vectors[len(part.texts) :] @ weights[:, :-1].T + weights[:, -1]
    after = classifier.predict([(text,) for text in part.tested], precision=config.precision)
    return names, np.stack([after, before])


def _test_folds(config: SupconTextConfig, context: "ProcessContext", train: Train) -> LabelProof:
    """Label the texts of each fold by the run without it and by its start, score both, and write the files."""
    start = Encoder.from_pretrained(config.model, max_length=config.max_length, device=context.device)
    texts, gold, logits = [], [], []
    names: tuple[str, ...] = ()
    for part in _train_folds(config, context, train):
        names, of_part = context.processes.broadcast_from_first(partial(_label, part, config, start))
        logits.append(of_part)
        texts += [(text,) for text in part.tested]
        gold += [names.index(label) for label in part.gold]
    if not texts:
        raise NearfarError("--data: no label has 3 texts, so none can be tested. --hold-out 0 leaves the test out.")
    how = f"rows in {FOLDS} folds, each by a model that was trained on the other folds"
    runs = [
        EvaluationRun(model, _score(config, texts, gold, outputs, model=model, names=names, how=how, encoder=start))
        for model, outputs in zip((config.output, config.model), np.concatenate(logits, axis=1), strict=True)
    ]
    comparison = compare_runs(runs[:1], runs[1:], tasks=[TASK], resamples=RESAMPLES)
    comparison = replace(comparison, overall=None, overall_transfer=None, overall_retrieval=None)  # of one task
    proof, folder = LabelProof(runs[0].result, comparison), Path(config.output)
    if context.processes.is_main:
        (folder / HELD_OUT).mkdir(exist_ok=True)
        save_with_tables(comparison, folder / HELD_OUT / COMPARISON)
        _save(proof.result, folder)
    return proof


def _score(
    config: SupconTextConfig,
    texts: Sequence[tuple[str, ...]],
    gold: Sequence[int],
    logits: NDArray[np.float32],
    *,
    model: str,
    names: tuple[str, ...],
    how: str,
    encoder: Encoder,
) -> EvaluationResult:
    """The result of ``model``; the texts that ``encoder`` has seen before are counted."""
    entry = finetuned_entry(texts, gold, logits, label_names=names, seed=[config.seed, *TASK.encode()])
    facts, settings = [f"{len(texts):,} {how}"], asdict(config)
    return finetuned_result(
        entry, texts, model=model, task=TASK, settings=settings, facts=facts, dim=encoder.dim, seen=encoder.seen
    )


def _save(result: EvaluationResult, folder: Path) -> None:
    """Write the picture of which labels are mistaken for which, and the result, into a run folder."""
    assert result.transfer is not None
    entry = result.transfer.tasks[TASK]
    assert isinstance(entry, ClassificationScores)
    confusions(entry.gold, entry.predicted, entry.classes, folder / PICTURE)
    save_with_tables(result, folder / RESULT)
