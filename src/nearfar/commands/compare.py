"""One comparison put together: sides opened or evaluated, tests, file. What ``nearfar compare`` and notebooks call."""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from nearfar.commands.evaluate import evaluate
from nearfar.data.named_sets import PROBE_TASKS
from nearfar.data.paths import as_path, check_file, is_file, is_folder, status
from nearfar.disk import model_of_run, path_errors
from nearfar.evaluation import results
from nearfar.evaluation.comparison import check_comparison, compare_pairwise, compare_runs, shared_tasks
from nearfar.evaluation.correlation import Aggregate
from nearfar.evaluation.paired import EvaluationRun
from nearfar.evaluation.tables import comparison_markdown, comparisons_markdown
from nearfar.runs.group import FILE, runs_of
from nearfar.types import Encode, NearfarError

ComparisonInput: TypeAlias = "str | Path | Encode | Mapping[str, Any] | Sequence[ComparisonInput]"
"""A model (folder, hub name, function), a result file or its content; or several runs: a list, a group, a folder of
result files."""

MODEL_FILES = ("modules.json", "config.json", "run.json")
"""What marks a folder as a model, or as a training run, which holds one."""


@path_errors()
def compare(
    first: ComparisonInput,
    second: ComparisonInput,
    *others: ComparisonInput,
    tasks: Sequence[str] | None = None,
    aggregate: Aggregate = "all",
    resamples: int = 10_000,
    seed: int = 0,
    output: str | Path | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> results.Result:
    """Test whether the first side is better than the second, on each task and on the average over tasks.

    With more sides each two of them are tested, and p is corrected over all of these tests.

    Result files are compared as they are; models are evaluated on the same tasks first. A side of several runs, the
    same method with different training seeds, has the mean of their scores. See
    :func:`nearfar.evaluation.comparison.compare_runs` for the tests.

    Args:
        first: one side.
        second: the other; differences are first minus second.
        others: further sides.
        tasks: by default those that all runs have, and the standard ones for two models.
        aggregate: how a task with subsets becomes one number: ``all``, ``mean`` or ``wmean``.
        resamples: bootstrap resamples.
        seed: of the bootstrap.
        output: file to write, ending in .json; a Markdown table is written beside it.
        overwrite: replace ``output`` even if it is no result of nearfar's.
        progress: show progress bars.

    Returns:
        The content of the comparison's file (see :mod:`nearfar.evaluation.comparison`).

    Raises:
        NearfarError: a side cannot be read or evaluated, the sides were scored on different data or share no task, or
            the output cannot be written.
    """
    check_comparison(aggregate, resamples, seed)
    tasks = (tasks,) if isinstance(tasks, str) else tasks
    items = [_expand_runs(side) for side in (first, second, *others)]
    inputs = [*chain(*items), *(tasks or ())]
    file = None if output is None else results.check_output(output, inputs=inputs, overwrite=overwrite)
    opened = [[_open(item) for item in side] for side in items]
    opened_runs = [item for side in opened for item in side if isinstance(item, EvaluationRun)]
    wanted = tasks or (shared_tasks(opened_runs) if opened_runs else None)
    sides = [
        [
            item if isinstance(item, EvaluationRun) else _evaluate(item, wanted, opened_runs, progress=progress)
            for item in side
        ]
        for side in opened
    ]
    settings: dict[str, Any] = {"tasks": tasks, "aggregate": aggregate, "resamples": resamples, "seed": seed}
    if others:
        comparison = compare_pairwise(sides, **settings, progress=progress)
        markdown = comparisons_markdown(comparison)
    else:
        comparison = compare_runs(*sides, **settings, progress=progress)
        markdown = comparison_markdown(comparison)
    if file:
        results.write_result(comparison, file, markdown=markdown)
    return comparison


def _expand_runs(side: ComparisonInput) -> list[Any]:
    """The runs of a side, one by one: a folder of result files is its files, a list is its items.

    Of a run of ``nearfar finetune`` it is the result on its test rows.
    """
    if isinstance(side, str | Path):
        folder = as_path(side)
        if status(folder) is not None and not is_folder(folder):
            check_file(folder)
        if is_folder(folder) and not is_file(folder / FILE):
            model_of_run(folder)  # which says of a run that it is not finished
        if runs := runs_of(folder):
            return list(runs)
        if is_file(folder / "result.json"):  # a run of fine-tuning
            return [folder / "result.json"]
        if not is_folder(folder) or any(status(folder / name) is not None for name in MODEL_FILES):
            return [side]
        files = sorted(folder.glob("*.json"))
        if not files:
            raise NearfarError(
                f"{folder}: neither a model (no modules.json or config.json), nor a finished run, nor a folder of "
                "result files."
            )
        return list(files)
    if isinstance(side, Sequence):
        if not side:
            raise NearfarError("a side of the comparison is an empty list.")
        return [item for one in side for item in _expand_runs(one)]
    return [side]


def _open(item: Any) -> Any:
    """A :class:`Run` where the item is a result file or its content, else the model itself."""
    if isinstance(item, Mapping):
        results.validate(item, source="the result")
        return EvaluationRun(item["model"], dict(item))
    if isinstance(item, str | Path) and str(item).endswith(".json"):
        if status(Path(item)) is not None:
            check_file(Path(item))
        return EvaluationRun(str(item), results.read_result(item))
    return item


def _evaluate(
    model: "str | Path | Encode", tasks: Sequence[str] | None, opened_runs: Sequence[EvaluationRun], *, progress: bool
) -> EvaluationRun:
    """Evaluate a model in the way that the results at hand were."""
    transfer = next((run.result["transfer"] for run in opened_runs if "transfer" in run.result), None)
    probe = {key: transfer[key] for key in ("protocol", "nhid", "folds") if key in transfer} if transfer else {}
    labelled = [task for task in tasks or () if transfer and task in transfer["tasks"] and task not in PROBE_TASKS]
    named = None if tasks is None else [task for task in tasks if task not in labelled]
    result = evaluate(model, tasks=named, labelled=labelled, **probe, resamples=0, progress=progress)
    return EvaluationRun(result["model"], result)
