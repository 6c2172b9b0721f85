"""A report put together, as blocks: the summary, scores, comparisons, transfer tasks, training, geometry, settings."""

from nearfar.evaluation.correlation import Aggregate
from nearfar.evaluation.report.blocks import Block, Details, Items, Page, Section
from nearfar.evaluation.report.comparisons import comparisons
from nearfar.evaluation.report.found import Found
from nearfar.evaluation.report.scores import by_protocol, similarity, transfer
from nearfar.evaluation.report.settings import settings
from nearfar.evaluation.report.spaces import spaces
from nearfar.evaluation.report.summary import summary
from nearfar.evaluation.report.training import training
from nearfar.evaluation.report.verdicts import Verdicts
from nearfar.evaluation.results import Result

MOST_MISSING = 6
"""So many missing pieces are told at the top; more of them are to be opened."""


def compose(found: Found, *, title: str, aggregate: Aggregate = "all", computed: Result | None = None) -> Page:
    """The page of what was ``found``.

    Args:
        found: what was named, opened and checked.
        title: of the page.
        aggregate: how a similarity task with subsets becomes one number in the main table.
        computed: a comparison of all sides, made for this page.
    """
    verdicts = Verdicts(found.sides, computed=computed, given=[result for _, result in found.comparisons])
    missing = [
        *found.missing,
        *(
            f"{side.name}: {task} was not evaluated. {reason}"
            for side in found.sides
            for task, reason in dict(item for run in side.runs for item in run.result["unavailable"].items()).items()
        ),
    ]
    top: list[Block] = [Items(summary(found, verdicts, aggregate))]
    if missing:
        short = len(missing) <= MOST_MISSING
        listed = Items(missing) if short else Details(f"All {len(missing)} pieces", [Items(missing)])
        top.append(Section("What is missing", [listed]))
    tuned = {protocol for protocol, *_ in by_protocol(found.sides)} == {"finetune"}
    sections = {
        "Summary": top,
        "Similarity": similarity(found.sides, verdicts, aggregate),
        "Comparisons": comparisons(found.sides, computed, found.comparisons),
        "Fine-tuned classifiers" if tuned else "Transfer tasks": transfer(found.sides, verdicts),
        "Training": training(found.runs) if found.runs else [],
        "Geometry": spaces(found.geometries) if found.geometries else [],
        "How it was done": settings(found),
    }
    return Page(title, [Section(name, blocks) for name, blocks in sections.items() if blocks])
