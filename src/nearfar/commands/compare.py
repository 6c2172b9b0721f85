"""``nearfar compare``: sides are read or evaluated, then tested against each other; optionally written to a file."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from nearfar.commands.evaluate import evaluate, probe_flags
from nearfar.commands.evaluate.model import Model, RecentVectors, open_model
from nearfar.commands.evaluate.tasks import RETRIEVAL_SETTINGS, run_of, stored_evaluation
from nearfar.config.calls import accepts_settings
from nearfar.config.values import flag
from nearfar.config.verbs import CompareConfig, EvaluateConfig
from nearfar.data.files import extension, is_known
from nearfar.data.hold_out import TEST
from nearfar.data.memory import table_file, takes_rows
from nearfar.data.named_sets import PROBE_TASKS
from nearfar.data.paths import as_path, check_file
from nearfar.data.retrieval import RetrievalTask
from nearfar.data.unit_scores import read_scores
from nearfar.disk.checks import path_errors
from nearfar.disk.model_folder import model_of_run
from nearfar.evaluation.comparison import EvaluationRun, compare_sides, shared_tasks
from nearfar.evaluation.examples import compare_rankings
from nearfar.evaluation.results import ComparisonResult, EvaluationResult, PairwiseResult, QueryChanges, check_output
from nearfar.evaluation.systems import compare_systems, score_runs
from nearfar.evaluation.tables import save_with_tables
from nearfar.runs.folder import RUN_INFO
from nearfar.runs.held_out import TASK, has_held_out, load_held_out
from nearfar.types import NearfarError

ComparisonInput: TypeAlias = "Model | EvaluationResult | Sequence[ComparisonInput]"
"""A model (folder, hub name, Encoder, SentenceTransformer, function) or an evaluation (a result file, or an
:class:`EvaluationResult`). A side of several runs is a list of these, or a folder of result files."""
MODEL_FILES = ("modules.json", "config.json", "run.json")
"""A folder that contains one of these is a model or a run folder."""


@takes_rows
@accepts_settings(CompareConfig)
@path_errors()
def compare(
    first: ComparisonInput, *others: ComparisonInput, config: CompareConfig, progress: bool = True
) -> ComparisonResult | PairwiseResult:
    """Test whether the first side is better than the second, on each task and on the average over tasks.

    With more sides, each pair of sides is tested, and p is corrected over all of these tests. Settings can be given by
    name: ``compare("a.json", "b.json", resamples=1000)``; see :class:`nearfar.CompareConfig`.

    Result files are compared as they are; models are first evaluated on the same tasks. A side of several runs (the
    same method with different training seeds) has the mean of their scores. By default the tasks are those that all
    runs have, and for two models the standard ones. See :func:`nearfar.evaluation.comparison.compare_runs` for the
    tests.

    ``first`` alone is a table of scores by any tool, a file or a data frame, with the columns of
    :mod:`nearfar.data.unit_scores`; with ``qrels`` all sides are run files of TREC. Each pair of systems is tested, and
    the systems are ranked (:mod:`nearfar.evaluation.systems`).

    Args:
        first: one side, or a table of scores.
        others: the other side, and further ones; differences are first minus second.
        config: the settings.
        progress: show progress bars.

    Returns:
        A :class:`~nearfar.evaluation.results.ComparisonResult`; with more than two sides, and of scores by other tools,
        a :class:`~nearfar.evaluation.results.PairwiseResult`.

    Raises:
        NearfarError: a side cannot be read or evaluated, the sides were scored on different data or share no task, or
            the output cannot be written.
    """
    first = table_file(first, "the table")
    is_table = isinstance(first, str | Path) and is_known(Path(first)) and extension(Path(first)) != ".json"
    if not others and config.qrels is None and not is_table:
        raise NearfarError(
            "two sides are needed: nearfar compare FIRST SECOND [MORE ...]; or one table of scores (.tsv, .csv, "
            ".jsonl, .parquet) with the columns system, unit, score."
        )
    compute = _compare_models if others and config.qrels is None else _compare_scores
    file, result = compute([first, *others], config, progress=progress)
    if file:
        save_with_tables(result, file)
    return result


def _check_output(config: CompareConfig, inputs: Iterable[object]) -> Path | None:
    return None if config.output is None else check_output(config.output, inputs=inputs, overwrite=config.overwrite)


def _compare_models(
    sides: Sequence[ComparisonInput], config: CompareConfig, *, progress: bool
) -> tuple[Path | None, ComparisonResult | PairwiseResult]:
    """The output, and the comparison of sides that are models or evaluations."""
    opened = [_open(side) for side in sides]
    items = list(chain(*opened))
    opened_runs = [item for item in items if isinstance(item, EvaluationRun)]
    file = _check_output(config, [*items, *(run.source for run in opened_runs), *(config.tasks or ())])
    tasks = list(config.tasks) if config.tasks else shared_tasks(opened_runs) if opened_runs else None
    runs = (run_of(item) for item in items if not isinstance(item, EvaluationRun))
    run = next((folder for folder in runs if folder is not None and has_held_out(folder)), None)
    if config.held_out or (tasks is None and run is not None):
        tasks = list(dict.fromkeys([*(tasks or []), TASK]))
        if run is None and not opened_runs:
            raise NearfarError("--held-out: none of the sides is a run that holds out rows.")
    task = held_out_queries(run) if run is not None and config.examples and TASK in (tasks or ()) else None
    if config.examples and (task is None or opened_runs or [len(side) for side in opened] != [1, 1]):
        raise NearfarError(
            "--examples: shows held-out queries of two models; name two model or run folders, one of them a run "
            "that holds out rows with queries, as by nearfar train --hold-out 0.2."
        )
    computing: dict[str, Any] = {"recent": RecentVectors(), "progress": progress}
    evaluated = partial(_evaluate, tasks=tasks, opened_runs=opened_runs, run=run, **computing)
    evaluations = [
        [item if isinstance(item, EvaluationRun) else evaluated(model=item) for item in side] for side in opened
    ]
    names = ("aggregate", "measure", "margin", "resamples", "seed")
    how = {name: value for name in names if (value := getattr(config, name)) is not None}
    own = tasks if config.held_out or not opened_runs else config.tasks
    comparison = compare_sides(evaluations, tasks=own, progress=progress, **how)
    if task is not None and isinstance(comparison, ComparisonResult):
        comparison = replace(comparison, queries=compare_queries(items[0], items[1], task, **computing))
    return file, comparison


def _compare_scores(
    sides: Sequence[ComparisonInput], config: CompareConfig, *, progress: bool
) -> tuple[Path | None, PairwiseResult]:
    """The output, and the systems of a table of scores, or of run files, which are ranked by ``config.qrels``."""
    for name in ("held_out", "examples", "aggregate", *(() if config.qrels else ("measure",))):
        if getattr(config, name) != getattr(CompareConfig, name):
            raise NearfarError(f"{flag(name)}: is for models and result files, not for scores of other tools.")
    files = [as_path(side) for side in sides if isinstance(side, str | Path)]
    if len(files) < len(sides):
        raise NearfarError("--qrels: ranks the documents of run files; name files of TREC's format.")
    qrels, measure = config.qrels and as_path(config.qrels), config.measure or "ndcg@10"
    file = _check_output(config, [*files, qrels])
    how = {name: getattr(config, name) for name in ("tasks", "resamples", "seed", "margin")}
    scores = score_runs(files, qrels, measure) if qrels else read_scores(files[0])
    return file, compare_systems(scores, measure=measure if qrels else None, progress=progress, **how)


def held_out_queries(run: Path) -> RetrievalTask | None:
    """The queries of the test rows that a run holds out; None if it has none, or tests its rows in folds."""
    held_out = load_held_out(run)
    return None if held_out.folds or held_out.kind in ("scored", "labelled") else held_out.retrieval(TEST)


def compare_queries(
    first: Model,
    second: Model,
    task: RetrievalTask,
    *,
    recent: RecentVectors,
    device: str | None = None,
    progress: bool = False,
) -> QueryChanges:
    """Which queries of a task the first model ranks better or worse than the second; ``recent`` has their vectors."""
    from nearfar.evaluation.retrieval import best_hits

    rankings = []
    for side in (first, second):
        is_run = isinstance(side, str | Path) and (Path(side) / RUN_INFO).is_file()
        model = model_of_run(Path(str(side))) if is_run else side
        opened = open_model(model, EvaluateConfig(device=device), progress=progress, recent=recent)
        how: dict[str, Any] = {name: getattr(opened, name) for name in ("similarity", "per_task", "device")}
        rankings.append(best_hits(opened.encode_query, opened.encode_document, task, **how))
    relevant = [{task.documents[position] for position in grades} for grades in task.relevant]
    return compare_rankings(task.queries, relevant, *rankings)


def _open(side: ComparisonInput) -> list[Any]:
    """The runs of a side: an :class:`EvaluationRun` of each result, or a model as it is."""
    if isinstance(side, EvaluationResult):
        return [EvaluationRun(side.model, side)]
    if isinstance(side, str | Path):
        files = _result_files(side)
        return [EvaluationRun(str(file), EvaluationResult.load(file)) for file in files] if files else [side]
    if not isinstance(side, Sequence):
        return [side]
    if not side:
        raise NearfarError("a side of the comparison is an empty list.")
    return [item for one in side for item in _open(one)]


def _result_files(side: str | Path) -> Sequence[str | Path]:
    """The result files that a side names: itself, or those of a folder; none for a model.

    For a run of ``nearfar finetune`` it is the result on its test rows.
    """
    folder = as_path(side)
    if (folder / "result.json").is_file():  # a run of fine-tuning, or the evaluation of a study's cell
        return [folder / "result.json"]
    if not folder.is_dir() and str(side).endswith(".json"):
        return [side]
    if not folder.exists():
        return []  # a name on the hub
    if not folder.is_dir():
        check_file(folder)
        raise NearfarError(
            f"{folder}: is a file, but a side is a model, a run or a result file (.json). Run files of TREC need the "
            "judgements of their documents, --qrels FILE; a table of scores is compared alone, as it holds all systems."
        )
    model_of_run(folder)  # raises for an unfinished run
    if any((folder / name).is_file() for name in MODEL_FILES):
        return []
    if not (files := sorted(folder.glob("*.json"))):
        raise NearfarError(
            f"{folder}: is neither a model (no modules.json or config.json), nor a finished run, nor a folder of "
            "result files."
        )
    return files


def _evaluate(
    model: "Model",
    *,
    tasks: Sequence[str] | None,
    opened_runs: Sequence[EvaluationRun],
    run: Path | None,
    **computing: Any,
) -> EvaluationRun:
    """Evaluate a model in the same way as the evaluations that it is compared with.

    ``run`` is the run whose held-out rows are evaluated on, if they are among the tasks. What training has stored of
    them is used again.
    """
    settings: dict[str, Any] = {}
    named = None if tasks is None else [task for task in tasks if task != TASK]
    if tasks is not None and TASK in tasks:
        settings = {"held_out": True} if run is None else {"held_out_of": run}
        if run is not None and not named and (stored := stored_evaluation(run, model)) is not None:
            return EvaluationRun(stored.model, stored)
    for result in reversed([one.result for one in opened_runs]):  # the first one counts
        if result.transfer:
            own = [task for task in named or () if task in result.transfer.tasks and task not in PROBE_TASKS]
            settings |= {**probe_flags(result.transfer), "labelled": own}
        if ranked := [task for task in named or () if task in result.retrieval]:
            of_result = {key: result.config[key] for key in RETRIEVAL_SETTINGS if key in result.config}
            settings |= {**of_result, "retrieval": ranked}
    other = {*settings.get("labelled", ()), *settings.get("retrieval", ())}
    named = named and [task for task in named if task not in other]
    result = evaluate(model, tasks=named, **settings, resamples=0, **computing)
    return EvaluationRun(result.model, result)
