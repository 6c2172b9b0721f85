"""What the sides of a report have seen of the tasks in training, and their scores on the pairs that they have not."""

from collections.abc import Sequence

from nearfar.evaluation.report.blocks import DASH, Block, Cell, Table
from nearfar.evaluation.report.inputs import EvaluatedModel
from nearfar.evaluation.tables.seen import LEGEND, format_seen, mean_score, seen_notes, seen_of


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
    return [Table(caption, ["model", *tasks], rows, notes)]


def _unseen(side: EvaluatedModel, task: str) -> str:
    """The score on the unseen pairs, for several runs the mean."""
    unseen = [scored.unseen for run in side.runs if (scored := run.result.tasks.get(task)) is not None]
    score = mean_score([None if one is None else one.spearman.score for one in unseen])
    return "" if score is None else f"unseen {score:.2f}"
