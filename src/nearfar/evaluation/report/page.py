"""The sections of a report: summary, scores, retrieval, comparisons, transfer tasks, training, geometry, settings."""

from collections.abc import Sequence

from nearfar.evaluation.correlation import Aggregate
from nearfar.evaluation.report.blocks import Block, BulletList, Details, Page, Section
from nearfar.evaluation.report.columns import AnyComparison, SignificanceLookup
from nearfar.evaluation.report.inputs import ReportInputs, TrainingRun
from nearfar.evaluation.report.scores import (
    retrieval,
    retrieval_grid,
    seen_in_training,
    similarity,
    similarity_grid,
    transfer,
    transfer_grids,
)
from nearfar.evaluation.report.sections import comparisons, geometry_blocks, outcome, settings, training
from nearfar.evaluation.results import GeometryResult

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
    significance = SignificanceLookup(
        inputs.sides, computed=computed, from_files=[result for _, result in inputs.comparisons]
    )
    missing = [
        *inputs.missing,
        *(
            f"{side.name}: {task} was not evaluated. {reason}"
            for side in inputs.sides
            for task, reason in dict(item for run in side.runs for item in run.result.unavailable.items()).items()
        ),
    ]
    top: list[Block] = [BulletList(summary(inputs, significance, aggregate))]
    if missing:
        short = len(missing) <= MAX_MISSING_SHOWN
        listed = BulletList(missing) if short else Details(f"All {len(missing)} items", [BulletList(missing)])
        top.append(Section("What is missing", [listed]))
    tuned = {protocol for protocol, _ in transfer_grids(inputs.sides, significance)} == {"finetune"}
    sections = {
        "Summary": top,
        "Similarity": similarity(inputs.sides, significance, aggregate),
        "Retrieval": retrieval(inputs.sides, significance),
        "Comparisons": comparisons(inputs.sides, computed, inputs.comparisons),
        "Fine-tuned classifiers" if tuned else "Transfer tasks": transfer(inputs.sides, significance),
        "Seen in training": seen_in_training(inputs.sides),
        "Training": training(inputs.runs) if inputs.runs else [],
        "Geometry": geometry_blocks(inputs.geometries) if inputs.geometries else [],
        "Settings and provenance": settings(inputs),
    }
    return Page(title, [Section(name, blocks) for name, blocks in sections.items() if blocks])


def summary(inputs: ReportInputs, significance: SignificanceLookup, aggregate: Aggregate) -> list[str]:
    """Sentences about scores, retrieval, transfer tasks, training runs and geometries."""
    sides, lines = inputs.sides, []
    similar, ranked = similarity_grid(sides, significance, "spearman", aggregate), retrieval_grid(sides, significance)
    if similar.indices:
        lines.append(similar.headline("Similarity", f"Spearman × 100, {aggregate}"))
    if ranked.indices:
        lines.append(ranked.headline("Retrieval", "means over queries × 100"))
    for (protocol, _), probed in transfer_grids(sides, significance).items():
        tuned = protocol == "finetune"
        how = "accuracy × 100" if tuned else f"accuracy × 100, protocol {protocol}"
        lines.append(probed.headline("Fine-tuned" if tuned else "Transfer", how))
    if inputs.runs:
        lines += _training(inputs.runs)
    for _, result in inputs.geometries:
        lines += _geometry(result)
    return lines


def _training(runs: Sequence[TrainingRun]) -> list[str]:
    finished = [run for run in runs if run.record]
    number = f"{len(runs)} training runs" if len(runs) > 1 else "1 training run"
    state = "" if len(finished) == len(runs) else f", {len(finished)} of them finished"
    known = [(one.best, run, one) for run in runs if (one := outcome(run)).best is not None]
    lines = []
    for dev in dict.fromkeys(run.dev for run in runs):
        here = [entry for entry in known if entry[1].dev == dev]
        if here:
            best, run, result = max(here, key=lambda entry: entry[0] or 0.0)
            before = "" if result.before is None else f", from {result.before:.2f} before training"
            lines.append(f"The highest score on {dev} is {run.name}'s: {best:.2f} at step {result.best_step}{before}.")
    worse = [run.name for best, run, one in known if best is not None and one.before is not None and best <= one.before]
    if worse:
        lines.append(f"No step scored higher on the dev set than the untrained encoder: {', '.join(worse)}.")
    return [" ".join([f"{number}{state}.", *lines])]


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
