"""Labelled texts: a classifier on the trained encoder's embeddings, and its proof on texts that it was not trained on.

The classifier is logistic regression on embeddings of length 1, fitted to the training rows and saved with the encoder;
``nearfar predict`` opens it. Of fewer than :data:`FEW` rows none is held out: all are trained on, and the proof trains
again without each of :data:`FOLDS` folds and labels the texts of the fold. Of more rows, the held-out ones are the
proof. Beside it stands logistic regression on the encoder that training starts from, fitted to the same rows.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.train.inputs import ObjectiveRows, read_training_data, resolve_objectives, without_held_out
from nearfar.config import TrainConfig
from nearfar.data.fingerprints import combine_hashes, text_hashes
from nearfar.data.hold_out import SEED, TEST, kind_of, take_rows
from nearfar.data.rows import TextData
from nearfar.encoder.classifier import open_classifier
from nearfar.encoder.classifier_folder import HEAD_FILE, LabelHead, unit_length
from nearfar.encoder.encoder import Encoder
from nearfar.evaluation.comparison import compare_runs
from nearfar.evaluation.finetuned import draw_confusion, finetuned_entry, finetuned_result
from nearfar.evaluation.logistic import fit_by_folds
from nearfar.evaluation.paired import EvaluationRun
from nearfar.evaluation.render import Table
from nearfar.evaluation.results import ClassificationScores, ComparisonResult, EvaluationResult
from nearfar.evaluation.tables.evaluation import class_table, seen_tables
from nearfar.evaluation.tables.pages import save_with_tables
from nearfar.runs.folder import HELD_OUT, read_run_info
from nearfar.runs.held_out import COMPARISON, TASK, has_held_out, load_held_out
from nearfar.runs.run import ProcessContext, group_of
from nearfar.runtime.progress import progress_bar
from nearfar.training.gradients import Gradients
from nearfar.training.optimiser import OptimiserSettings
from nearfar.training.trainer import Evaluation, LoopSettings, Trainer
from nearfar.types import NearfarError, Precision

RESULT = "result.json"
FOLDS = 5
HEAD_ROWS = 20_000
"""Maximum number of rows that the classifier is fitted to."""
RESAMPLES = 10_000


class LabelProof(NamedTuple):
    """What the proof of a run on labelled texts found."""

    result: EvaluationResult
    """The classifier on the tested texts; its predictions are those of models that were not trained on the text."""
    comparison: ComparisonResult
    """Beside logistic regression on the start."""


class _Tested(NamedTuple):
    """Tested texts, their labels, and the logits [texts, classes] of both sides."""

    label_names: tuple[str, ...]
    texts: list[str]
    gold: list[int]
    trained: NDArray[np.float32]
    start: NDArray[np.float32]
    start_encoder: Encoder
    facts: list[str]


def fit_head(vectors: NDArray[np.float32], labels: Sequence[float], names: Sequence[str]) -> LabelHead:
    """The classifier of embeddings [rows, dim] with labels; of more than :data:`HEAD_ROWS` rows it uses every n-th."""
    every = -(-len(vectors) // HEAD_ROWS)
    weights, _ = fit_by_folds(
        unit_length(vectors[::every]), np.array(labels, dtype=np.intp)[::every], classes=len(names)
    )
    return LabelHead(tuple(names), weights[:, :-1].astype(np.float32), weights[:, -1].astype(np.float32))


def head_of(encoder: Encoder, part: ObjectiveRows, precision: Precision) -> LabelHead | None:
    """The classifier on an encoder that was trained on the rows of ``part``; None if these are not labelled texts."""
    rows = part.rows
    if kind_of(rows) != "labelled" or not isinstance(rows, TextData):
        return None
    texts = [text for (text,) in rows.rows[: part.objective.config.limit]]
    return fit_head(encoder.encode(texts, precision=precision), (rows.targets or [])[: len(texts)], rows.label_names)


def prove_labels(config: TrainConfig, context: ProcessContext) -> LabelProof | None:
    """Test the finished run of ``config``, and write ``result.json``, a picture and the comparison into its folder.

    The files are read where they exist. None if the run has no classifier, or tests nothing (``--hold-out 0``).

    Raises:
        NearfarError: a fold cannot be trained, a model cannot be opened, or a file cannot be written.
        nearfar.training.trainer.Interrupted: after Ctrl-C; the run itself is finished.
    """
    folder, first = Path(config.output), context.processes.broadcast_from_first
    comparison = folder / HELD_OUT / COMPARISON
    has_head, has_files, held_out, precision = first(
        lambda: (
            (folder / "model" / HEAD_FILE).exists(),
            comparison.is_file() and (folder / RESULT).is_file(),
            has_held_out(folder),
            read_run_info(folder).get("precision", config.precision),
        )
    )
    if not has_head or not (held_out or (config.hold_out is None and config.evaluate_on is None)):
        return None
    if has_files:
        return first(lambda: LabelProof(EvaluationResult.load(folder / RESULT), ComparisonResult.load(comparison)))
    config = replace(config, precision=precision)
    tested = None if held_out else _test_folds(config, context)
    return first(lambda: _write(config, tested or _test_held_out(config, context), folder))


def label_tables(result: EvaluationResult) -> list[Table]:
    """The scores of the classifier by label, how it was tested, and what the start has seen of the tested texts."""
    assert result.transfer is not None
    entry = result.transfer.tasks[TASK]
    assert isinstance(entry, ClassificationScores)
    table = class_table(entry)
    notes = [*table.notes, *(f"Tested: {fact}." for fact in result.config["data"])]
    return [replace(table, notes=notes), *seen_tables(result)]


def _test_held_out(config: TrainConfig, context: ProcessContext) -> _Tested:
    """The classifier of the run and one on the start, on the test part of the held-out rows."""
    held_out = load_held_out(config.output)
    task = held_out.vote(TEST)
    classifier, start = open_classifier(config.output, device=context.device), _open_start(config, context)
    names = classifier.label_names
    number = {name: place for place, name in enumerate(names)}
    head = fit_head(
        start.encode(task.training_texts, precision=config.precision),
        [number[label] for label in task.training_labels],
        names,
    )
    return _Tested(
        names,
        task.texts,
        [number[label] for label in task.labels],
        classifier.predict([(text,) for text in task.texts], precision=config.precision),
        head.logits(start.encode(task.texts, precision=config.precision)),
        start,
        [f"{len(task.texts):,} held-out test rows, of a model that was trained on {held_out.training_rows:,} others"],
    )


def _test_folds(config: TrainConfig, context: ProcessContext) -> _Tested:
    """Train without each fold, and label its texts. All processes train together."""
    data = read_training_data(resolve_objectives(config))
    rows = data[0].rows
    assert isinstance(rows, TextData)
    texts, labels = [text for (text,) in rows.rows], np.array(rows.targets, dtype=np.intp)
    folds = assign_folds(texts, labels)
    start = _open_start(config, context)
    before = start.encode(texts, precision=config.precision)
    logits = np.zeros((2, len(texts), len(rows.label_names)), dtype=np.float32)
    with progress_bar("fold", FOLDS, shown=context.console.is_terminal) as advance:
        for fold in range(FOLDS):
            inside, outside = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
            if len(inside):
                kept = without_held_out(data, take_rows(rows, outside.tolist()), [texts[row] for row in inside])
                after = _train(config, kept, context).encode(texts, precision=config.precision)
                for side, vectors in enumerate((after, before)):
                    head = fit_head(vectors[outside], labels[outside].tolist(), rows.label_names)
                    logits[side, inside] = head.logits(vectors[inside])
            advance(1)
    tested = np.flatnonzero(folds >= 0)
    if not len(tested):
        raise NearfarError(f"{rows.sources[0]}: no label has 3 texts, so nothing can be tested; see --hold-out 0.")
    facts = [f"all {len(tested):,} rows in {FOLDS} folds, each labelled by a model that was trained on the others"]
    if len(tested) < len(texts):
        facts.append(f"{len(texts) - len(tested):,} rows, of labels with 2 texts, are trained on and not tested")
    chosen = [texts[row] for row in tested]
    return _Tested(rows.label_names, chosen, labels[tested].tolist(), *logits[:, tested], start, facts)


def assign_folds(texts: Sequence[str], labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """The fold of each row, from 0 on; -1 for rows that are always trained on. It depends on texts and labels alone.

    Folds have equally many texts of each label, up to one. Equal texts (:mod:`nearfar.data.fingerprints`) are in one
    fold. Without a fold, each of its labels has two texts or more, which contrastive training needs.
    """
    hashes = text_hashes(texts)
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    keys = combine_hashes(hashes[first], np.full(len(first), SEED, dtype=np.uint64))
    of_group = np.empty(len(first), dtype=np.intp)
    of_group[np.lexsort((keys, labels[first]))] = np.arange(len(first)) % FOLDS
    for label in np.unique(labels):
        own = np.unique(group[labels == label])
        for fold in range(FOLDS):
            inside = own[of_group[own] == fold]
            if len(own) - len(inside) < 2:
                of_group[inside] = -1
    return of_group[group]


class _FoldTrainer(Trainer):
    """Trains to the last step, without evaluations and files."""

    def evaluate(self) -> Evaluation:
        """Nothing chooses a step."""
        return Evaluation(None, {})


def _train(config: TrainConfig, data: Sequence[ObjectiveRows], context: ProcessContext) -> Encoder:
    """An encoder that is trained on ``data`` as the run was on all rows; its weights are in memory only."""
    from nearfar.commands.train.run import attach_teacher_vectors, prepare

    processes = context.processes
    fitting = []
    for objective, rows in data:
        size = min(objective.config.batch_size, len(rows.rows) // processes.size)
        fitting.append(ObjectiveRows(replace(objective, config=replace(objective.config, batch_size=size)), rows))
    prepared = prepare(config, fitting, processes=processes.size, device=context.device)
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


def _open_start(config: TrainConfig, context: ProcessContext) -> Encoder:
    return Encoder.from_pretrained(config.model, max_length=config.max_length, device=context.device)


def _write(config: TrainConfig, tested: _Tested, folder: Path) -> LabelProof:
    """Score both sides, and write the files, the comparison last."""
    texts = [(text,) for text in tested.texts]
    results = []
    for model, logits in ((str(folder), tested.trained), (config.model, tested.start)):
        seed = [config.seed, *TASK.encode()]
        entry = finetuned_entry(texts, tested.gold, logits, label_names=tested.label_names, seed=seed)
        result = finetuned_result(
            entry,
            texts,
            model=model,
            task=TASK,
            settings=asdict(config),
            facts=tested.facts,
            dim=tested.start_encoder.dim,
            seen=tested.start_encoder.seen,
        )
        results.append(EvaluationRun(model, result))
    comparison = compare_runs(results[:1], results[1:], tasks=[TASK], resamples=RESAMPLES)
    comparison = replace(comparison, overall=None, overall_transfer=None, overall_retrieval=None)  # of one task
    save_with_tables(results[0].result, folder / RESULT)
    draw_confusion(results[0].result, folder)
    (folder / HELD_OUT).mkdir(exist_ok=True)
    save_with_tables(comparison, folder / HELD_OUT / COMPARISON)
    return LabelProof(results[0].result, comparison)
