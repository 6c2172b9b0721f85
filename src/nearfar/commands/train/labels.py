"""Labelled texts: a classifier of the trained encoder's embeddings, and its proof on texts that it was not trained on.

The classifier is logistic regression on embeddings of length 1, fitted to the training rows and saved with the encoder;
``nearfar predict`` opens it. Few rows (:data:`nearfar.commands.train.choose.FEW_LABELLED`) are all trained on, and the
proof trains again without each of :data:`FOLDS` folds, whose texts it then labels. Of more rows the held-out ones are
the proof. Beside it stands logistic regression on the encoder that training starts from, fitted to the same rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.train.inputs import ObjectiveRows, read_training_data, resolve_objectives, without_held_out
from nearfar.config import TrainConfig
from nearfar.data.fingerprints import combine_hashes, text_hashes
from nearfar.data.hold_out import SEED, TEST, kind_of, take_rows
from nearfar.data.rows import TextData
from nearfar.encoder.classifier import HEAD_FILE, EmbeddingClassifier
from nearfar.encoder.encoder import Encoder
from nearfar.evaluation.comparison import compare_runs
from nearfar.evaluation.finetuned import draw_confusion, finetuned_entry, finetuned_result
from nearfar.evaluation.paired import EvaluationRun
from nearfar.evaluation.results import ComparisonResult, EvaluationResult
from nearfar.evaluation.tables.pages import save_with_tables
from nearfar.runs.folder import HELD_OUT, read_run_info
from nearfar.runs.held_out import COMPARISON, TASK, has_held_out, load_held_out
from nearfar.runs.run import ProcessContext, group_of
from nearfar.training.gradients import Gradients
from nearfar.training.optimiser import OptimiserSettings
from nearfar.training.trainer import Evaluation, LoopSettings, Trainer
from nearfar.types import NearfarError, Precision

RESULT = "result.json"
FOLDS = 5
GRID = tuple(2.0**power for power in range(-2, 9, 2))
"""The values of C from which cross-validation chooses: scikit-learn's inverse penalty."""
MOST_ROWS = 20_000
"""Number of rows that the classifier is fitted to, about; of more, every n-th and the first of each label."""
RESAMPLES = 10_000
Indices: TypeAlias = NDArray[np.intp]


class LabelProof(NamedTuple):
    """What the proof of a run on labelled texts found."""

    result: EvaluationResult
    """The classifier on the tested texts; each prediction is by a model that was not trained on the text."""
    comparison: ComparisonResult
    """Beside logistic regression on the start."""


class _Rows(NamedTuple):
    """Labelled texts, and parts of them: the rows to fit to, the rows to test, and the encoder for both."""

    texts: list[str]
    labels: Indices
    label_names: tuple[str, ...]
    parts: Iterator[tuple[Indices, Indices, Encoder]]
    facts: list[str]


def fit_weights(vectors: NDArray[np.float32], labels: Indices) -> NDArray[np.float32]:
    """The weights [classes, dim + 1] of logistic regression, the bias last. Labels are 0 to classes - 1.

    C has the lowest -log p(label | text) by cross-validation over up to five folds that are stratified by label; it is
    1 if a label has a single row. Two classes have the logits -z/2 and z/2.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    every = -(-len(labels) // MOST_ROWS)
    rows = np.union1d(np.arange(0, len(labels), every), np.unique(labels, return_index=True)[1])
    vectors, labels = vectors[rows].astype(np.float64), labels[rows]
    model = LogisticRegression(max_iter=1000)
    folds = min(FOLDS, int(np.bincount(labels).min()))
    if folds > 1:
        parts = StratifiedKFold(folds, shuffle=True, random_state=0)
        model = GridSearchCV(model, {"C": GRID}, scoring="neg_log_loss", cv=parts)
    model.fit(vectors, labels)
    best = getattr(model, "best_estimator_", model)
    weights = np.column_stack([best.coef_, best.intercept_]).astype(np.float32)
    return np.concatenate([-weights / 2, weights / 2]) if len(weights) == 1 else weights


def classifier_of(encoder: Encoder, part: ObjectiveRows, precision: Precision) -> EmbeddingClassifier | None:
    """The classifier for an encoder that was trained on the rows of ``part``; None if these are not labelled texts."""
    rows = part.rows
    if kind_of(rows) != "labelled" or not isinstance(rows, TextData):
        return None
    texts = [text for (text,) in rows.rows[: part.objective.config.limit]]
    labels = np.array(rows.targets, dtype=np.intp)[: len(texts)]
    weights = fit_weights(encoder.encode(texts, normalize=True, precision=precision), labels)
    return EmbeddingClassifier(encoder, rows.label_names, weights)


def prove_labels(config: TrainConfig, context: ProcessContext) -> LabelProof | None:
    """Test the finished run of ``config``, and write ``result.json``, a picture and the comparison into its folder.

    The files are read where they exist. None if the run has no classifier, or tests nothing (``--hold-out 0``).

    Raises:
        NearfarError: a fold cannot be trained, a model cannot be opened, or a file cannot be written.
        nearfar.training.trainer.Interrupted: after Ctrl-C; the run itself is finished.
    """
    folder, first = Path(config.output), context.processes.broadcast_from_first
    comparison = folder / HELD_OUT / COMPARISON
    if not first((folder / "model" / HEAD_FILE).exists):
        return None
    if first(lambda: comparison.is_file() and (folder / RESULT).is_file()):
        return first(lambda: LabelProof(EvaluationResult.load(folder / RESULT), ComparisonResult.load(comparison)))
    config = replace(config, precision=first(lambda: read_run_info(folder)["precision"]))
    if first(lambda: has_held_out(folder)):
        return first(lambda: _prove(config, _held_out_rows(config, context), context))
    if config.hold_out is not None or config.evaluate_on is not None:
        return None
    return _prove(config, _rows_in_folds(config, context), context)


def _held_out_rows(config: TrainConfig, context: ProcessContext) -> _Rows:
    """The training rows, as far as the run folder has them, and the test part of the held-out rows."""
    held_out = load_held_out(config.output)
    task = held_out.vote(TEST)
    names = tuple(sorted(set(task.training_labels)))
    tested = [row for row in zip(task.texts, task.labels, strict=True) if row[1] in names]
    texts = [*task.training_texts, *(text for text, _ in tested)]
    labels = np.array([names.index(one) for one in (*task.training_labels, *(label for _, label in tested))])
    trained, rows = len(task.training_texts), np.arange(len(labels))
    encoder = Encoder.from_pretrained(config.output, device=context.device)
    facts = [f"{len(tested):,} held-out rows, by a model that was trained on {held_out.training_rows:,} others"]
    parts = iter([(rows[:trained], rows[trained:], encoder)])
    return _Rows(texts, labels, names, parts, facts)


def _rows_in_folds(config: TrainConfig, context: ProcessContext) -> _Rows:
    """All rows in folds; for each one the rows outside and inside, and an encoder that is trained on those outside."""
    data = read_training_data(resolve_objectives(config))
    rows = data[0].rows
    assert isinstance(rows, TextData)
    texts, labels = [text for (text,) in rows.rows], np.array(rows.targets, dtype=np.intp)
    folds = assign_folds(texts, labels)
    untested = int((folds < 0).sum())
    if untested == len(texts):
        raise NearfarError(f"{' '.join(config.data)}: no label has 3 texts, so none can be tested. See --hold-out 0.")
    facts = [f"{len(texts) - untested:,} rows in {FOLDS} folds, each by a model that was trained on the other folds"]
    if untested:
        facts.append(f"{untested:,} rows of labels with 2 texts are trained on and not tested")

    def parts() -> Iterator[tuple[Indices, Indices, Encoder]]:
        for fold in sorted(set(folds.tolist()) - {-1}):
            inside, outside = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
            context.console.print(f"testing fold {fold + 1} of {FOLDS}", highlight=False)
            kept = without_held_out(data, take_rows(rows, outside.tolist()), [texts[row] for row in inside])
            yield outside, inside, _train(config, kept, context)

    return _Rows(texts, labels, rows.label_names, parts(), facts)


def assign_folds(texts: Sequence[str], labels: Indices) -> Indices:
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


class _FoldTrainer(Trainer):
    """Trains to the last step, without evaluations and files."""

    def evaluate(self) -> Evaluation:
        """Nothing chooses a step."""
        return Evaluation(None, {})


def _train(config: TrainConfig, data: Sequence[ObjectiveRows], context: ProcessContext) -> Encoder:
    """An encoder that is trained on ``data`` as the run was on all rows, by all processes; it is in memory only."""
    from nearfar.commands.train.run import attach_teacher_vectors, prepare

    processes, smaller = context.processes, []
    for objective, rows in data:
        size = min(objective.config.batch_size, len(rows.rows) // processes.size)
        own = replace(objective, config=replace(objective.config, batch_size=size))
        smaller.append(ObjectiveRows(own, rows))
    prepared = prepare(config, smaller, processes=processes.size, device=context.device)
    trainer = _FoldTrainer(
        prepared.mixture,
        prepared.encoder,
        loop=group_of(LoopSettings, config, total_steps=prepared.total_steps),
        optimiser=group_of(OptimiserSettings, config, epsilon=config.adam_epsilon),
        gradients=group_of(Gradients, config, processes=processes, bf16=config.precision == "bf16"),
        rate_factors=prepared.rate_factors,
    )
    with TemporaryDirectory() as folder:
        attach_teacher_vectors(prepared.teachers, Path(folder), processes, progress=False)
        trainer.train()
    trainer.use_averages()
    prepared.merge()
    return prepared.encoder


def _prove(config: TrainConfig, rows: _Rows, context: ProcessContext) -> LabelProof:
    """Label the tested rows by both encoders, score the labels, and write the files, the comparison last."""
    start = Encoder.from_pretrained(config.model, max_length=config.max_length, device=context.device)
    before = start.encode(rows.texts, normalize=True, precision=config.precision)
    logits = np.full((2, len(rows.texts), len(rows.label_names)), np.nan, dtype=np.float32)
    for fitted, inside, encoder in rows.parts:
        after = encoder.encode(rows.texts, normalize=True, precision=config.precision)
        for side, vectors in enumerate((after, before)):
            weights = fit_weights(vectors[fitted], rows.labels[fitted])
            logits[side, inside] = vectors[inside] @ weights[:, :-1].T + weights[:, -1]
    tested = np.flatnonzero(np.isfinite(logits).all(axis=(0, 2)))
    texts, gold = [(rows.texts[row],) for row in tested], rows.labels[tested].tolist()
    runs = []
    for model, outputs in zip((config.output, config.model), logits[:, tested], strict=True):
        seed = [config.seed, *TASK.encode()]
        result = finetuned_result(
            finetuned_entry(texts, gold, outputs, label_names=rows.label_names, seed=seed),
            texts,
            model=model,
            task=TASK,
            settings=asdict(config),
            facts=rows.facts,
            dim=start.dim,
            seen=start.seen,
        )
        runs.append(EvaluationRun(model, result))
    comparison = compare_runs(runs[:1], runs[1:], tasks=[TASK], resamples=RESAMPLES)
    comparison = replace(comparison, overall=None, overall_transfer=None, overall_retrieval=None)  # of one task
    proof = LabelProof(runs[0].result, comparison)
    if context.processes.is_main:
        folder = Path(config.output)
        (folder / HELD_OUT).mkdir(exist_ok=True)
        draw_confusion(proof.result, folder)
        save_with_tables(proof.result, folder / RESULT)
        save_with_tables(comparison, folder / HELD_OUT / COMPARISON)
    return proof
