"""The sections of a report: summary, scores, retrieval, comparisons, transfer tasks, training, geometry, settings."""

from nearfar.evaluation.correlation import Aggregate
from nearfar.evaluation.report.blocks import Block, BulletList, Details, Page, Section
from nearfar.evaluation.report.inputs import ReportInputs
from nearfar.evaluation.report.scores import indices_by_protocol, retrieval, seen_in_training, similarity, transfer
from nearfar.evaluation.report.sections import comparisons, geometry_blocks, settings
from nearfar.evaluation.report.significance import AnyComparison, SignificanceLookup
from nearfar.evaluation.report.summary import summary
from nearfar.evaluation.report.training import training

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
    tuned = {protocol for protocol, *_ in indices_by_protocol(inputs.sides)} == {"finetune"}
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
