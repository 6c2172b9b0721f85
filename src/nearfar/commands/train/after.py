"""After training: the trained model against the one it started from, on the held-out test rows."""

from dataclasses import replace
from pathlib import Path

from nearfar.commands.train.dev import DOCUMENTS
from nearfar.disk import path_errors
from nearfar.evaluation.comparison import compare_runs
from nearfar.evaluation.paired import EvaluationRun
from nearfar.evaluation.render import Table
from nearfar.evaluation.results import ComparisonResult
from nearfar.evaluation.tables.evaluation import format_score, format_seen
from nearfar.evaluation.tables.pages import save_with_tables
from nearfar.runs.folder import HELD_OUT
from nearfar.runs.held_out import COMPARISON, TASK, has_held_out
from nearfar.types import NearfarError, metric_title

RESAMPLES = 10_000
DETECTABLE = (1.96 + 0.84) / (2 * 1.96)
"""A true difference of this many widths of the 95% interval is found (p < 0.05) with a power of 80%."""


@path_errors()
def compare_with_start(
    run: Path, model: str, *, device: str | None = None, progress: bool = False
) -> ComparisonResult | None:
    """Compare the finished ``run`` with ``model``, and write ``held_out/before-after.json`` in its folder.

    The file is read where it exists. None if the run holds out no rows.

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

    from nearfar.commands.evaluate.command import evaluate
    from nearfar.commands.evaluate.tasks import STORED

    trained, start = (
        [EvaluationRun(str(one), evaluate(one, held_out_of=str(run), resamples=0, device=device, progress=progress))]
        for one in (run, model)
    )
    for name, (evaluated,) in zip(STORED, (trained, start), strict=True):
        evaluated.result.save(run / HELD_OUT / name)  # nearfar compare takes them while rows and models are these
    result = compare_runs(trained, start, tasks=[TASK], resamples=RESAMPLES)
    result = replace(result, overall=None, overall_transfer=None, overall_retrieval=None)  # of one task
    save_with_tables(result, file)
    return result


def before_after(result: ComparisonResult, metric: str) -> Table:
    """The table that training ends with: scores on the held-out test rows before and after."""
    row = result.tasks[TASK]
    metric = "accuracy" if row.kind == "classification" else metric
    title = f"{metric_title(metric)} x 100 on {row.pairs:,} held-out test rows"
    difference, p = "undefined", ""
    if row.difference is not None:
        difference, p = f"{row.difference:+.2f} [{row.low:+.2f}, {row.high:+.2f}]", f"{row.p:.4f}"
    found = "not significant" if not row.separable else "better" if (row.difference or 0) > 0 else "worse"
    header = ["before", "after", "after - before [95%]", "p", "trained model"]
    seen = [(side.seen or {}).get(TASK) for side in result.sides]
    which = "Rows that were neither trained on nor used to choose the step"
    if any(shares and (shares.main or shares.texts) for shares in seen):
        after, before = (format_seen(shares) or "not recorded" for shares in seen)
        which = (
            "Rows that this run neither trained on nor used to choose the step, but earlier training did. Share of the "
            f"pairs (in brackets: of the texts) that was seen: before {before}, after {after}"
        )
    notes = [f"{which}. Interval: paired bootstrap{f'; p: {row.test}' if row.test else ''}."]
    width = (row.high or 0.0) - (row.low or 0.0)
    if width and not row.separable:
        notes.append(
            f"As many rows find a difference of {DETECTABLE * width:.1f} (with a power of 80%); --hold-out NUMBER "
            "holds out more."
        )
    if row.kind == "retrieval":
        notes.append(f"All documents are searched; during training at most {DOCUMENTS:,}, which gives higher scores.")
    cells = [format_score(row.second), format_score(row.first), difference, p, found]
    return Table(title=title, columns=header, rows=[cells], notes=notes)
