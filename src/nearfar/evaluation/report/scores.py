"""Tables of scores: a row for each side, a column for each task and average; the best of each column is marked."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from nearfar.data.retrieval import MEASURES
from nearfar.evaluation.comparison import SIGNIFICANCE_LEVEL
from nearfar.evaluation.correlation import AGGREGATES, Aggregate
from nearfar.evaluation.render import Cell, Table
from nearfar.evaluation.report.blocks import DASH, Block, Details, Paragraph
from nearfar.evaluation.report.columns import (
    METRICS,
    Column,
    Score,
    SignificanceLookup,
    retrieval_columns,
    score_of,
    similarity_columns,
    transfer_columns,
)
from nearfar.evaluation.report.inputs import EvaluatedModel
from nearfar.evaluation.results import PairedTest, TransferResults
from nearfar.evaluation.tables.evaluation import LEGEND, format_seen, mean_score, seen_notes, seen_of

_AGGREGATES = {
    "all": "over all pairs of a task together (all)",
    "mean": "the average of a task's subsets (mean)",
    "wmean": "the average of a task's subsets, weighted by pairs (wmean)",
}


class RankedColumn(NamedTuple):
    """A column with the score of each side."""

    column: Column
    scores: list[Score | None]
    best: list[int]
    """The sides with the highest score; empty where only one side has a score, or where their data differ."""
    problem: str | None
    """Why no best score is marked."""


def rank_column(sides: Sequence[EvaluatedModel], indices: Sequence[int], column: Column) -> RankedColumn:
    """Find the best of a column among the sides at the positions ``indices``."""
    scores = [score_of(side, column) if number in indices else None for number, side in enumerate(sides)]
    values = {number: value for number, score in enumerate(scores) if (value := _value(score)) is not None}
    data = {str(column.data(run.result)) for number in values for run in sides[number].runs}
    if len(data) > 1:
        return RankedColumn(column, scores, [], "scored on different data, so no best score is marked")
    if len(values) < 2:
        return RankedColumn(column, scores, [], None)
    highest = max(values.values())
    return RankedColumn(column, scores, [number for number, value in values.items() if value == highest], None)


def similarity(sides: Sequence[EvaluatedModel], significance: SignificanceLookup, aggregate: Aggregate) -> list[Block]:
    """Spearman by the chosen aggregate; the other aggregates and Pearson in a block to open."""
    indices = similarity_indices(sides)
    if not indices:
        return []

    def table(metric: str, kind: Aggregate) -> Table:
        columns = similarity_columns([sides[number] for number in indices], metric, kind)
        return score_table(sides, indices, columns, significance, f"{METRICS[metric]} × 100, {_AGGREGATES[kind]}")

    others = [("spearman", kind) for kind in AGGREGATES if kind != aggregate]
    others += [("pearson", kind) for kind in (aggregate, *(kind for kind in AGGREGATES if kind != aggregate))]
    more = Details("Other averages of subsets, and Pearson", [table(metric, kind) for metric, kind in others])
    return [table("spearman", aggregate), more]


def transfer(sides: Sequence[EvaluatedModel], significance: SignificanceLookup) -> list[Block]:
    """Accuracies of probes, a table for each protocol."""
    protocols = indices_by_protocol(sides)
    blocks: list[Block] = []
    for (protocol, probe), indices in protocols.items():
        columns = transfer_columns([sides[number] for number in indices])
        caption = f"Accuracy × 100 of probes, protocol {probe}"
        if protocol == "finetune":
            caption = "Accuracy × 100 of fine-tuned classifiers"
        blocks.append(score_table(sides, indices, columns, significance, caption))
    shown = {number for indices in protocols.values() for number in indices}
    for number, side in enumerate(sides):
        if _transfer_results(side) and number not in shown:
            blocks.append(
                Paragraph(f"{side.name} is left out: not all of its runs were probed, or not with the same protocol.")
            )
    return blocks


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


def seen_in_training(sides: Sequence[EvaluatedModel]) -> list[Block]:
    """A table with a row for each side whose training is known, and a column for each task; none if none is known."""
    seen = {number: seen_of([run.result for run in side.runs]) for number, side in enumerate(sides)}
    tasks = list(dict.fromkeys(task for known in seen.values() for task in known))
    if not tasks:
        return []
    rows: list[list[Cell | str]] = []
    notes = [LEGEND]
    for number, known in seen.items():
        if known:
            side = sides[number]
            cells = [Cell(format_seen(known[task]), _unseen(side, task)) if task in known else DASH for task in tasks]
            rows.append([side.name, *cells])
            notes += [f"{side.name}: {note}" for note in seen_notes(known)]
    if any(0 < len(known) < len(tasks) for known in seen.values()):
        notes.append(f"{DASH}: not evaluated.")
    if unknown := [sides[number].name for number, known in seen.items() if not known]:
        notes.append(f"Not in the table, because their training left no record: {', '.join(unknown)}.")
    caption = "Share of the pairs (in brackets: of the texts), and Spearman × 100 on the unseen pairs"
    return [Table(title=caption, columns=["model", *tasks], rows=rows, notes=notes)]


def _unseen(side: EvaluatedModel, task: str) -> str:
    """The score on the unseen pairs, for several runs the mean."""
    unseen = [scored.unseen for run in side.runs if (scored := run.result.tasks.get(task)) is not None]
    score = mean_score([None if one is None else one.spearman.score for one in unseen])
    return "" if score is None else f"unseen {score:.2f}"


def similarity_indices(sides: Sequence[EvaluatedModel]) -> list[int]:
    """The sides that were evaluated on similarity."""
    return [number for number, side in enumerate(sides) if any(run.result.tasks for run in side.runs)]


def indices_by_protocol(sides: Sequence[EvaluatedModel]) -> dict[tuple[str, str], list[int]]:
    """(Protocol, all settings of the probes in words) -> the sides whose runs were all probed in this way."""
    protocols: dict[tuple[str, str], list[int]] = {}
    for number, side in enumerate(sides):
        used = {(one.protocol, one.describe_probe()) for one in _transfer_results(side)}
        if len(used) == 1 and len(_transfer_results(side)) == len(side.runs):
            protocols.setdefault(used.pop(), []).append(number)
    return protocols


def _transfer_results(side: EvaluatedModel) -> list[TransferResults]:
    return [run.result.transfer for run in side.runs if run.result.transfer]


def _interval_caption(sides: Sequence[EvaluatedModel]) -> str:
    single = any(len(side.runs) == 1 for side in sides)
    several = any(len(side.runs) > 1 for side in sides)
    shown = [*(["[95% interval]"] * single), *(["for several seeds the mean ± standard deviation"] * several)]
    return f"; {', '.join(shown)}"


def score_table(
    sides: Sequence[EvaluatedModel],
    indices: Sequence[int],
    columns: Sequence[Column],
    significance: SignificanceLookup,
    caption: str,
) -> Table:
    """A table with a row for each side at ``indices``; tests are between all ``sides``."""
    grid = [rank_column(sides, indices, column) for column in columns]
    tests = {
        (place, side, best): significance.test(one.column, best, side, one.scores)
        for place, one in enumerate(grid)
        for best in one.best
        for side in range(len(sides))
        if side not in one.best
    }
    rows: list[list[Cell | str]] = []
    for side in indices:
        cells: list[Cell | str] = [_name(sides[side])]
        for place, one in enumerate(grid):
            found = [tests[place, side, best] for best in one.best if (place, side, best) in tests]
            near = any(test is not None and test.separable is False for test in found)
            cells.append(_cell(one.scores[side], "best" if side in one.best else "near" if near else ""))
        rows.append(cells)
    header = ["model", *(column.title for column in columns)]
    caption += _interval_caption([sides[number] for number in indices])
    notes = [*_legend(grid, tests), *_notes(sides, indices, grid)]
    return Table(title=caption, columns=header, rows=rows, notes=notes)


def _value(score: Score | None) -> float | None:
    return None if score is None else score.value


def _name(side: EvaluatedModel) -> Cell:
    if len(side.runs) == 1:
        return Cell(side.name)
    known = [str(seed) for seed in side.seeds if seed is not None]
    return Cell(side.name, f"{len(side.runs)} seeds{': ' if known else ''}{', '.join(known)}")


def _cell(score: Score | None, mark: Any) -> Cell:
    if score is None:
        return Cell(DASH)
    if score.value is None:
        return Cell("undefined")
    detail = "" if score.low is None or score.high is None else f"[{score.low:.1f}, {score.high:.1f}]"
    return Cell(f"{score.value:.2f}", detail if score.sd is None else f"± {score.sd:.2f}", mark)


def _legend(grid: Sequence[RankedColumn], tests: dict[tuple[int, int, int], PairedTest | None]) -> list[str]:
    if not any(one.best for one in grid):
        return []
    if not any(test is not None for test in tests.values()):
        return ["Bold: the highest score of its column; no comparison tests whether the difference is significant."]
    untested = [
        one.column.title
        for place, one in enumerate(grid)
        if any(
            place == key[0] and test is None and _value(one.scores[key[1]]) is not None for key, test in tests.items()
        )
    ]
    return [
        "Bold: the best of its column; = not significantly different from it: p, corrected (Holm) where there are "
        f"several tests, is {SIGNIFICANCE_LEVEL} or more.",
        *([f"Not all scores were tested against the best in: {', '.join(untested)}."] * bool(untested)),
    ]


def _notes(sides: Sequence[EvaluatedModel], indices: Sequence[int], grid: Sequence[RankedColumn]) -> list[str]:
    notes = [f"{one.column.title}: {one.problem}." for one in grid if one.problem]
    averages = [one.column for one in grid if one.column.average is not None]
    for members, title in {column.tasks: column.title for column in averages}.items():
        notes.append(f"{title}: mean over {', '.join(members)}.")
    for one in grid:
        for number in indices:
            score = one.scores[number]
            if score is not None and score.reason:
                notes.append(f"{sides[number].name}, {one.column.title}: undefined, {score.reason}.")
    if any(one.scores[number] is None for one in grid for number in indices):
        notes.append(f"{DASH}: not evaluated.")
    return notes + [
        f"{sides[number].name}: fitted on the texts of each task, without their scores (transductive)."
        for number in indices
        if any(run.result.transductive for run in sides[number].runs)
    ]
