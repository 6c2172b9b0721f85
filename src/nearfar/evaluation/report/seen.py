"""What the sides of a report have seen of the tasks in training, and their scores on the pairs that they have not."""

from collections.abc import Sequence
from statistics import mean

from nearfar.evaluation.report.blocks import DASH, Block, Cell, Section, Table
from nearfar.evaluation.report.inputs import EvaluatedModel
from nearfar.evaluation.tables.seen import LEGEND, format_seen, seen_notes, seen_of


def seen_in_training(sides: Sequence[EvaluatedModel]) -> list[Block]:
    """A table with a row for each side whose training is known, and a column for each task; none if none is known."""
    seen = {number: seen_of([run.result for run in side.runs]) for number, side in enumerate(sides)}
    tasks = list(dict.fromkeys(task for known in seen.values() for task in known))
    rows: list[list[Cell | str]] = []
    notes = [LEGEND]
    for number, known in seen.items():
        if known:
            side = sides[number]
            cells = [Cell(format_seen(known[task]), _unseen(side, task)) if task in known else DASH for task in tasks]
            rows.append([side.name, *cells])
            notes += [f"{side.name}: {note}" for note in seen_notes(known)]
    if not rows:
        return []
    if any(len(known) < len(tasks) for known in seen.values()):
        notes.append(f"{DASH}: not evaluated, or its training left no record.")
    caption = "Share of each task that was seen, and Spearman × 100 on the unseen pairs"
    return [Section("Seen in training", [Table(caption, ["model", *tasks], rows, notes)])]


def _unseen(side: EvaluatedModel, task: str) -> str:
    """The score on the unseen pairs, for several runs the mean."""
    unseen = [scored.unseen for run in side.runs if (scored := run.result.tasks.get(task)) is not None]
    scores = [one.spearman.score for one in unseen if one is not None and one.spearman.score is not None]
    return f"unseen {mean(scores):.2f}" if scores and len(scores) == len(side.runs) else ""
