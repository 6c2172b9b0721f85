"""The sections of a report: summary, tests of runs, scores, comparisons, training, geometry, settings."""

from collections.abc import Collection, Sequence

from nearfar.evaluation.correlation import Aggregate
from nearfar.evaluation.report.blocks import Block, BulletList, Details, Page, Section
from nearfar.evaluation.report.inputs import ReportInputs, TrainingRun
from nearfar.evaluation.report.scores import (
    AnyComparison,
    retrieval,
    retrieval_grid,
    seen_in_training,
    similarity,
    similarity_grid,
    transfer,
    transfer_grids,
)
from nearfar.evaluation.report.sections import (
    comparisons,
    geometry_blocks,
    held_out_tests,
    outcome,
    settings,
    training,
)
from nearfar.evaluation.results import GeometryResult
from nearfar.evaluation.tables.comparison import format_difference, metric_of, verdict

MAX_MISSING_SHOWN = 6
"""Up to this number, missing items are listed at the top; more are in a block to open."""


def compose(
    inputs: ReportInputs, *, title: str, aggregate: Aggregate = "all", computed: AnyComparison | None = None
) -> Page:
    """The page that shows the ``inputs``.

    Args:
        inputs: everything to show.
        title: title of the page.
        aggregate: how a similarity task with subsets becomes one number in the main table.
        computed: a comparison of all sides that was computed for this page.
    """
    missing = [
        *inputs.missing,
        *(
            f"{side.name}: {task} was not evaluated. {reason}"
            for side in inputs.sides
            for task, reason in dict(item for run in side.runs for item in run.result.unavailable.items()).items()
        ),
    ]
    top: list[Block] = [BulletList(summary(inputs, computed, aggregate))]
    if missing:
        short = len(missing) <= MAX_MISSING_SHOWN
        listed = BulletList(missing) if short else Details(f"All {len(missing)} items", [BulletList(missing)])
        top.append(Section("What is missing", [listed]))
    tuned = {protocol for protocol, _ in transfer_grids(inputs.sides, computed)} == {"finetune"}
    sections = {
        "Summary": top,
        "Test on held-out rows": held_out_tests(inputs.runs),
        "Similarity": similarity(inputs.sides, computed, aggregate),
        "Retrieval": retrieval(inputs.sides, computed),
        "Comparisons": comparisons(inputs.sides, computed, inputs.comparisons),
        "Fine-tuned classifiers" if tuned else "Transfer tasks": transfer(inputs.sides, computed),
        "Seen in training": seen_in_training(inputs.sides),
        "Training": training(inputs.runs) if inputs.runs else [],
        "Geometry": geometry_blocks(inputs.geometries) if inputs.geometries else [],
        "Settings and provenance": settings(inputs),
    }
    return Page(title, [Section(name, blocks) for name, blocks in sections.items() if blocks])


def summary(inputs: ReportInputs, computed: AnyComparison | None, aggregate: Aggregate) -> list[str]:
    """Sentences, tests first: of training runs, then scores, retrieval, transfer tasks, and training and geometries."""
    sides, lines = inputs.sides, _tests(inputs.runs, [side.name for side in inputs.sides])
    similar, ranked = similarity_grid(sides, computed, "spearman", aggregate), retrieval_grid(sides, computed)
    if similar.indices:
        lines.append(similar.headline("Similarity", f"Spearman × 100, {aggregate}"))
    if ranked.indices:
        lines.append(ranked.headline("Retrieval", "means over queries × 100"))
    for (protocol, _), probed in transfer_grids(sides, computed).items():
        tuned = protocol == "finetune"
        how = "accuracy × 100" if tuned else f"accuracy × 100, protocol {protocol}"
        lines.append(probed.headline("Fine-tuned" if tuned else "Transfer", how))
    if inputs.runs:
        lines.append(_training(inputs.runs))
    for _, result in inputs.geometries:
        lines += _geometry(result)
    return lines


def _tests(runs: Sequence[TrainingRun], evaluated: Collection[str]) -> list[str]:
    """The test results of training runs, those without one, and what the dev scores warn of."""
    lines = []
    for run in runs:
        for row in run.tests.values():
            if row.difference is None:
                lines.append(f"{run.name}: the test on {row.pairs or 0:,} held-out rows is undefined.")
                continue
            lines.append(
                f"{run.name}, {metric_of(row)} × 100 on {row.pairs or 0:,} held-out test rows: {row.second:.2f} before "
                f"training, {row.first:.2f} after, {format_difference(row)}, p {row.p:.4f}: {verdict(row)}."
            )
    untested = [
        run.name for run in runs if run.record and not run.tested and not {run.name, run.group_name} & set(evaluated)
    ]
    if untested:
        lines.append(
            f"No test result: {', '.join(untested)}. Dev scores chose the step and prove nothing; nearfar evaluate RUN "
            "--output RESULT.json tests a run."
        )
    return lines


def _training(runs: Sequence[TrainingRun]) -> str:
    finished = sum(run.record is not None for run in runs)
    number = f"{len(runs)} training runs" if len(runs) > 1 else "1 training run"
    state = "" if finished == len(runs) else f", {finished} of them finished"
    dev = [(run.name, outcome(run)) for run in runs]
    worse = [name for name, one in dev if one.best is not None and one.before is not None and one.best <= one.before]
    warning = f" No step scored higher on the dev set than the untrained encoder: {', '.join(worse)}." * bool(worse)
    return f"{number}{state}.{warning}"


def _geometry(result: GeometryResult) -> list[str]:
    models = result.models
    if not models:
        return []
    even = min(models, key=lambda name: models[name].uniformity)
    near = min(models, key=lambda name: models[name].alignment)
    lines = [
        f"Geometry on {result.pairs.spec}: {even} has the lowest (best) uniformity, {models[even].uniformity:.2f}; "
        f"{near} has the lowest (best) alignment, {models[near].alignment:.3f}."
    ] * (len(models) > 1)
    return lines + [f"{name}: {model.warning}" for name, model in models.items() if model.warning]
