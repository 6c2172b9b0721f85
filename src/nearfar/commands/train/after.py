"""After training: the trained model against the one it started from, on rows that it was not trained on.

Of many rows some are held out, and their test part is the proof. A small file is trained on as a whole: the proof
trains again without each fold of its rows (:func:`nearfar.data.hold_out.in_folds`) and tests each row by the model that
was not trained on it. ``held_out/fold-1.json`` ... have the scores of the folds that are finished, until all are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from nearfar.commands.evaluate.tasks import STORED
from nearfar.commands.train.run import fit_weights, train_run
from nearfar.config.training import TrainConfig
from nearfar.data.hold_out import TEST, HeldOut
from nearfar.data.retrieval import MEASURES
from nearfar.disk import remove
from nearfar.disk.checks import path_errors
from nearfar.disk.model_folder import model_of_run
from nearfar.encoder.classifier import HEAD_FILE, EmbeddingClassifier, open_classifier
from nearfar.encoder.encoder import Encoder
from nearfar.evaluation.comparison import EvaluationRun, compare_runs
from nearfar.evaluation.finetuned import finetuned_entry, finetuned_result
from nearfar.evaluation.plots import confusions
from nearfar.evaluation.results import ComparisonResult, EvaluationResult, RetrievalScores, SimilarityScores
from nearfar.evaluation.retrieval import retrieval_scores
from nearfar.evaluation.sts import similarity_scores
from nearfar.evaluation.tables import save_with_tables
from nearfar.methods.gunel import SupconTextConfig
from nearfar.runs.fingerprints import fingerprint_model
from nearfar.runs.folder import CONFIG, HELD_OUT, read_run_info
from nearfar.runs.held_out import COMPARISON, TASK, has_held_out, load_held_out
from nearfar.runs.run import ProcessContext
from nearfar.runtime.progress import draws_bars
from nearfar.types import NearfarError

RESAMPLES = 10_000
RESULT, PICTURE = "labels.json", "labels.png"


@path_errors()
def prove(config: TrainConfig, context: ProcessContext) -> tuple[ComparisonResult | None, EvaluationResult | None]:
    """Test the finished run of ``config``, and write ``held_out/before-after.json`` and ``labels.json`` in its folder.

    The files are read where they exist. What is missing of a proof in folds is trained by all processes together.
    Gives the trained model against its start, None if no rows test it; and of labelled texts the classifier on the
    tested ones.

    Raises:
        NearfarError: a fold cannot be trained, a model cannot be evaluated, or a file cannot be written.
        nearfar.training.Interrupted: after Ctrl-C; the run itself and the finished folds are saved.
    """
    folder, first = Path(config.output), context.processes.broadcast_from_first
    held_out = first(lambda: load_held_out(folder) if has_held_out(folder) else None)
    if held_out is None:
        return None, None
    info = first(partial(read_run_info, folder))
    config = replace(config, precision=info["precision"])
    share = _guarded_share(info)
    if held_out.folds and share < 1 and not first((folder / HELD_OUT / STORED[0]).is_file):
        of_folds = config
        if not share or config.lora_rank is None:
            of_folds = replace(config, guard=(), start_weight=1 - (1 - share) * (1 - config.start_weight))
        _train_folds(of_folds, context, held_out)
    return first(partial(_test, config, context, held_out))


def _guarded_share(info: Mapping[str, Any]) -> float:
    """The share of the start that the guard of a run kept; 1 for the start itself, 0 without a guard.

    The folds of a small file have this share, and no guard of their own, which would take longer than they do.
    """
    tried = info.get("guard")
    return 0.0 if not tried else tried[-1]["start_share"] if tried[-1]["kept"] else 1.0


def _test(
    config: TrainConfig, context: ProcessContext, held_out: HeldOut
) -> tuple[ComparisonResult, EvaluationResult | None]:
    folder, file = Path(config.output), Path(config.output, HELD_OUT, COMPARISON)
    if not (file.is_file() and file.with_suffix(".md").is_file()):
        _write_comparison(config, context, held_out)
    comparison = ComparisonResult.load(file)
    if not (isinstance(config, SupconTextConfig) and (folder / "model" / HEAD_FILE).exists()):
        return comparison, None
    if not (folder / RESULT).is_file():
        stored = folder / HELD_OUT / STORED[0]
        labels = EvaluationResult.load(stored) if held_out.folds else label_held_out(config, held_out, context.device)
        entry: Any = _only(labels)
        confusions(entry.gold, entry.predicted, entry.classes, folder / PICTURE)
        save_with_tables(labels, folder / RESULT)
    return comparison, EvaluationResult.load(folder / RESULT)


def _write_comparison(config: TrainConfig, context: ProcessContext, held_out: HeldOut) -> None:
    """Compare the run with its start; both evaluations are stored, and used again while the models are these.

    Where held-out rows have queries, some of them stand in the comparison with their hits.
    """
    from nearfar.commands.compare import compare_queries, held_out_queries
    from nearfar.commands.evaluate import evaluate
    from nearfar.commands.evaluate.model import RecentVectors

    folder, folds = Path(config.output), held_out.folds
    stored = [folder / HELD_OUT / name for name in STORED]
    shown, recent = draws_bars(context.console), RecentVectors()
    computing: dict[str, Any] = {"device": context.device, "progress": shown, "recent": recent}
    own = partial(evaluate, held_out_of=str(folder), resamples=0, **computing)
    trained = None
    if not folds:
        trained = own(folder)
    elif _guarded_share(read_run_info(folder)) < 1:
        trained = EvaluationResult.load(stored[0])
    if folds and held_out.kind == "labelled":
        names = _only(trained).classes if trained else sorted({label for _, label in held_out.rows})
        start = label_by_start(config, held_out, names, context.device)
    else:
        start = own(config.model)
    if trained is None:  # the guard has kept the start
        trained = _as_stored(start, held_out, str(folder))
    if folds:  # the models of folds have seen what the start has
        trained = _with_scores(trained, replace(_only(trained), seen=_only(start).seen))
        for leftover in (folder / "fold", *(folder / HELD_OUT).glob("fold-*.json")):
            remove(leftover)
    for result, file in zip((trained, start), stored, strict=True):
        result.save(file)
    sides = [[EvaluationRun(name, result)] for name, result in ((str(folder), trained), (config.model, start))]
    comparison = compare_runs(*sides, tasks=[TASK], resamples=RESAMPLES)
    comparison = replace(comparison, overall=None, overall_transfer=None, overall_retrieval=None)  # of one task
    if (task := held_out_queries(folder)) is not None:
        comparison = replace(comparison, queries=compare_queries(folder, config.model, task, **computing))
    save_with_tables(comparison, folder / HELD_OUT / COMPARISON)


def _train_folds(config: TrainConfig, context: ProcessContext, held_out: HeldOut) -> None:
    """Train without each fold in a run folder that is removed afterwards, and store the scores of all folds as one.

    A run that was stopped in a fold continues there.
    """
    folder, first, count = Path(config.output), context.processes.broadcast_from_first, max(held_out.folds)
    files = [folder / HELD_OUT / f"fold-{fold}.json" for fold in range(1, count + 1)]
    for fold, file in enumerate(files, start=1):
        if first(file.is_file):
            continue
        context.console.print(f"fold {fold} of {count}", highlight=False)
        run = folder / "fold" / str(fold)
        without = replace(config, output=str(run), track=())
        resume, texts = first((run / CONFIG).is_file), held_out.texts_of(fold)
        try:
            train_run(without, resume=resume, console=Console(quiet=True), leave_out=texts)
        except NearfarError as error:
            raise NearfarError(f"{error} (fold {fold} of {count}; {folder / 'model'} itself is finished)") from error
        first(lambda: _test_fold(without, context, held_out, folder).save(file))  # noqa: B023  (called at once)
        first(partial(remove, folder / "fold"))
    first(partial(_join_folds, config, held_out, files))


def _test_fold(config: TrainConfig, context: ProcessContext, held_out: HeldOut, folder: Path) -> EvaluationResult:
    """The scores of the model of a fold on all rows."""
    if held_out.kind == "labelled":
        return label_held_out(config, held_out, context.device)
    from nearfar.commands.evaluate import evaluate

    return evaluate(config.output, held_out_of=str(folder), resamples=0, device=context.device, progress=False)


def _join_folds(config: TrainConfig, held_out: HeldOut, files: Sequence[Path]) -> None:
    """Store one result with the score of each row by the model that was not trained on it."""
    stored = [EvaluationResult.load(file) for file in files]
    of_folds = [_only(result) for result in stored]
    fold = np.array(held_out.folds_of_units()) - 1

    def joined(of_fold: list[Any]) -> Any:
        """What is measured of each unit, by the model of its fold."""
        return np.array(of_fold)[fold, np.arange(len(fold))]

    scores: Any = of_folds[0]
    if isinstance(scores, RetrievalScores):
        measured: dict[str, Any] = {
            measure: joined([one.per_query[measure] for one in of_folds]) for measure in MEASURES
        }
        scores = retrieval_scores(TASK, held_out.retrieval(TEST), measured, resamples=0, seed=0)
    elif isinstance(scores, SimilarityScores):
        cosines = joined([one.subsets[TASK].cosines_e6 for one in of_folds]).astype(np.float64)
        pairs, zeros = {TASK: held_out.pairs(TEST)}, scores.zero_vectors
        scores = similarity_scores(TASK, pairs, cosines, zero_vectors=zeros, resamples=0, seed=0)[0]
    else:
        outputs = np.eye(len(scores.classes))[joined([one.predicted for one in of_folds])]
        scores = label_scores(held_out, outputs, scores.classes, config.seed)
    folder = Path(config.output)
    _as_stored(_with_scores(stored[0], scores), held_out, str(folder)).save(folder / HELD_OUT / STORED[0])


def _only(result: EvaluationResult) -> Any:
    """The scores on the only task of a result."""
    (scores,) = result.all_tasks.values()
    return scores


def _with_scores(result: EvaluationResult, scores: Any) -> EvaluationResult:
    if isinstance(scores, RetrievalScores):
        return replace(result, retrieval={TASK: scores})
    if isinstance(scores, SimilarityScores):
        return replace(result, tasks={TASK: scores})
    assert result.transfer is not None
    return replace(result, transfer=replace(result.transfer, tasks={TASK: scores}))


def _as_stored(result: EvaluationResult, held_out: HeldOut, model: str) -> EvaluationResult:
    """The result of a model, of a run as it is saved, on rows that were tested in folds."""
    on = {"source": held_out.source, "digest": held_out.digest, "folds": max(held_out.folds)}
    fingerprint = fingerprint_model(model_of_run(Path(model)))
    return replace(result, model=model, fingerprint=fingerprint, config={**result.config, "held_out": on})


def label_held_out(config: TrainConfig, held_out: HeldOut, device: str | None) -> EvaluationResult:
    """Label the tested rows by the classifier of a run.

    Raises:
        NearfarError: the model cannot be opened.
    """
    classifier = open_classifier(config.output, device=device)
    assert isinstance(classifier, EmbeddingClassifier)
    outputs = classifier.predict([(text,) for text in held_out.vote(TEST).texts], precision=config.precision)
    return _label_result(config, held_out, outputs, classifier.label_names, classifier.encoder)


def label_by_start(
    config: TrainConfig, held_out: HeldOut, names: Sequence[str], device: str | None
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
    return _as_stored(_label_result(config, held_out, outputs, names, start), held_out, config.model)


def label_scores(held_out: HeldOut, outputs: NDArray[np.floating], names: Sequence[str], seed: int) -> Any:
    """The scores of ``outputs`` [texts, names] for the tested texts, with confidence intervals."""
    task = held_out.vote(TEST)
    gold, texts = [names.index(label) for label in task.labels], [(text,) for text in task.texts]
    return finetuned_entry(texts, gold, outputs, label_names=names, seed=[seed, *TASK.encode()])


def _label_result(
    config: TrainConfig, held_out: HeldOut, outputs: NDArray[np.floating], names: Sequence[str], encoder: Encoder
) -> EvaluationResult:
    """The result of a run with these ``outputs``; the texts that ``encoder`` has seen before are counted."""
    texts = [(text,) for text in held_out.vote(TEST).texts]
    how = f"held-out test rows, by a model that was trained on {held_out.training_rows:,} others"
    if held_out.folds:
        how = f"rows in {max(held_out.folds)} folds, each by a model that was trained on the other folds"
    return finetuned_result(
        label_scores(held_out, outputs, names, config.seed),
        texts,
        model=config.output,
        task=TASK,
        settings=asdict(config),
        facts=[f"{len(texts):,} {how}"],
        dim=encoder.dim,
        seen=encoder.seen,
    )
