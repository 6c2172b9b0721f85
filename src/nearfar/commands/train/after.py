"""After training: the trained model against the one it started from, on the held-out test rows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from nearfar.disk import path_errors
from nearfar.evaluation.comparison import EvaluationRun, compare_runs
from nearfar.evaluation.results import ComparisonResult
from nearfar.evaluation.tables.pages import save_with_tables
from nearfar.runs.folder import HELD_OUT
from nearfar.runs.held_out import COMPARISON, TASK, has_held_out
from nearfar.types import NearfarError

RESAMPLES = 10_000


@path_errors()
def compare_with_start(
    run: Path, model: str, *, device: str | None = None, progress: bool = False
) -> ComparisonResult | None:
    """Compare the finished ``run`` with ``model``, and write ``held_out/before-after.json`` in its folder.

    Where the rows have queries, the file has some of them with their hits. It is read where it exists. None if the run
    holds out no rows.

    Raises:
        NearfarError: a model cannot be evaluated, or the file cannot be written.
    """
    if not has_held_out(run):
        return None
    file = run / HELD_OUT / COMPARISON
    if file.is_file():
        try:
            result = ComparisonResult.load(file)
        except NearfarError as error:
            raise NearfarError(f"{error} Remove {file}; then --resume makes it again.") from error
        if not file.with_suffix(".md").is_file():  # the process was killed between the two
            save_with_tables(result, file)
        return result

    from nearfar.commands.compare import compare_queries, held_out_queries
    from nearfar.commands.evaluate import evaluate
    from nearfar.commands.evaluate.model import RecentVectors
    from nearfar.commands.evaluate.tasks import STORED

    computing: dict[str, Any] = {"device": device, "progress": progress, "recent": RecentVectors()}
    trained, start = (
        [EvaluationRun(str(one), evaluate(one, held_out_of=str(run), resamples=0, **computing))] for one in (run, model)
    )
    for name, (evaluated,) in zip(STORED, (trained, start), strict=True):
        evaluated.result.save(run / HELD_OUT / name)  # nearfar compare takes them while rows and models are these
    result = compare_runs(trained, start, tasks=[TASK], resamples=RESAMPLES)
    result = replace(result, overall=None, overall_transfer=None, overall_retrieval=None)  # of one task
    if (task := held_out_queries(run)) is not None:
        result = replace(result, queries=compare_queries(run, model, task, **computing))
    save_with_tables(result, file)
    return result
