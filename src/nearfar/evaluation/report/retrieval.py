"""Retrieval in a report: tables of scores, a row for each side and a column for each task."""

from collections.abc import Sequence

from nearfar.data.retrieval_task import MEASURES
from nearfar.evaluation.report.blocks import Block, Details
from nearfar.evaluation.report.columns import Column, common_average, first_entries
from nearfar.evaluation.report.inputs import EvaluatedModel
from nearfar.evaluation.report.scores import score_table
from nearfar.evaluation.report.significance import SignificanceLookup
from nearfar.evaluation.results import Estimate, EvaluationResult


def retrieval(sides: Sequence[EvaluatedModel], significance: SignificanceLookup) -> list[Block]:
    """The main measure of each task; all measures in a block to open."""
    indices = retrieval_indices(sides)
    if not indices:
        return []
    shown = [sides[number] for number in indices]
    main = score_table(
        sides, indices, retrieval_columns(shown, None), significance, "Retrieval × 100, means over queries"
    )
    others = [
        score_table(sides, indices, retrieval_columns(shown, measure), significance, f"{measure} × 100")
        for measure in MEASURES
    ]
    return [main, Details("All measures of retrieval", list(others))]


def retrieval_indices(sides: Sequence[EvaluatedModel]) -> list[int]:
    """The sides that were evaluated on retrieval."""
    return [number for number, side in enumerate(sides) if any(run.result.retrieval for run in side.runs)]


def retrieval_columns(sides: Sequence[EvaluatedModel], measure: str | None) -> list[Column]:
    """All retrieval tasks with ``measure``, by default with their main ones, and the average if it is the same."""
    tasks = first_entries(run.result.retrieval for side in sides for run in side.runs)

    def of_task(task: str, chosen: str) -> Column:
        def estimate(result: EvaluationResult) -> Estimate | None:
            return result.retrieval[task].metric(chosen) if task in result.retrieval else None

        def data(result: EvaluationResult) -> object:
            return result.retrieval[task].digest if task in result.retrieval else None

        title = task if measure else f"{task}, {chosen}"
        return Column(title, "tasks", task, (), None, estimate, data, measure=chosen)

    columns = {task: of_task(task, measure or scored.main) for task, scored in tasks.items()}
    if len({column.measure for column in columns.values()}) > 1:
        return list(columns.values())
    return [*columns.values(), *common_average(sides, columns, [], "overall_retrieval")]
