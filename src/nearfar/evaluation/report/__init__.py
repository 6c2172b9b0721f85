"""The page of a report: summary, tests of runs, scores and comparisons; what follows is in ``sections``."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from nearfar.data.retrieval import MEASURES
from nearfar.evaluation.correlation import AGGREGATES, Aggregate
from nearfar.evaluation.render import Row, Table, notes
from nearfar.evaluation.report import sections
from nearfar.evaluation.report.blocks import Block, Code, Section
from nearfar.evaluation.report.inputs import EvaluatedModel, ReportInputs, TrainingRun
from nearfar.evaluation.report.scores import AnyComparison, Grid, dots
from nearfar.evaluation.results import ComparisonResult, Estimate, PairwiseResult
from nearfar.evaluation.tables import comparison as words
from nearfar.evaluation.tables.evaluation import seen_of
from nearfar.types import metric_title

_AGGREGATES = {
    "all": "over all pairs of a task together (all)",
    "mean": "the average of a task's subsets (mean)",
    "wmean": "the average of a task's subsets, weighted by pairs (wmean)",
}


class Scores(NamedTuple):
    """Scores of one kind."""

    headlines: list[str]
    """What the summary says of them."""
    blocks: list[Block]


def compose(
    inputs: ReportInputs, *, title: str, aggregate: Aggregate = "all", computed: AnyComparison | None = None
) -> Section:
    """The page that shows the ``inputs``.

    Args:
        inputs: everything to show.
        title: title of the page.
        aggregate: how a similarity task with subsets becomes one number in the main table.
        computed: a comparison of all sides that was computed for this page.
    """
    sides, runs = inputs.sides, inputs.runs
    missing = [*inputs.missing, *notes("unavailable", sides)]
    scores = [similarity(sides, computed, aggregate), retrieval(sides, computed), transfer(sides, computed)]
    tests = [(run.name, row, words.before_after_sentence(row)) for run in runs for row in run.tests.values()]
    evaluated = {side.name for side in sides}
    known = {run.name for run in runs if run.tested or evaluated & {run.name, run.group_name}}
    summary = [
        *notes("tests", tests, [run.name for run in runs if run.record and run.name not in known]),
        *(line for one in scores for line in one.headlines),
        *notes("training", runs),
    ]
    tuned = {run.result.transfer.protocol for side in sides for run in side.runs if run.result.transfer} == {"finetune"}
    parts: dict[str, Sequence[Block]] = {
        "Summary": [summary, *([Section("What is missing", [missing])] if missing else [])],
        "Test on held-out rows": held_out_tests(runs),
        "Similarity": scores[0].blocks,
        "Retrieval": scores[1].blocks,
        "Comparisons": comparisons(sides, computed, inputs.comparisons),
        "Fine-tuned classifiers" if tuned else "Transfer tasks": scores[2].blocks,
        "Seen in training": seen_in_training(sides),
        "Training": sections.training(runs),
        "Geometry": sections.geometry(inputs.geometries),
        "Settings and provenance": sections.settings(inputs),
    }
    return Section(title, [Section(name, blocks) for name, blocks in parts.items() if blocks])


def similarity(sides: Sequence[EvaluatedModel], computed: AnyComparison | None, aggregate: Aggregate) -> Scores:
    """Spearman by the chosen aggregate; the other aggregates and Pearson in a block to open."""
    grids = {
        f"{metric_title(metric)} × 100, {_AGGREGATES[kind]}": Grid(
            sides, computed, "similarity", metric=metric, aggregate=kind
        )
        for metric in ("spearman", "pearson")
        for kind in dict.fromkeys((aggregate, *AGGREGATES))
    }
    return _scores(grids, "Similarity", f"Spearman × 100, {aggregate}", "Other averages of subsets, and Pearson")


def retrieval(sides: Sequence[EvaluatedModel], computed: AnyComparison | None) -> Scores:
    """The main measure of each task; all measures in a block to open."""
    main = {"Retrieval × 100, means over queries": Grid(sides, computed, "retrieval")}
    every = {f"{one} × 100": Grid(sides, computed, "retrieval", metric=one) for one in MEASURES}
    return _scores(main | every, "Retrieval", "means over queries × 100", "All measures of retrieval")


def _scores(grids: Mapping[str, Grid], kind: str, metric: str, details: str) -> Scores:
    """The first of the ``grids``, by their captions, and the others in a block with the title ``details``."""
    (caption, grid), *others = grids.items()
    if not grid.indices:
        return Scores([], [])
    more = Section(details, [one.table(name) for name, one in others], folded=True)
    return Scores([grid.headline(kind, metric)], [*grid.blocks(caption), more])


def transfer(sides: Sequence[EvaluatedModel], computed: AnyComparison | None) -> Scores:
    """Accuracies of probes, a table for each protocol."""
    scores, protocols = Scores([], []), defaultdict[tuple[str, str], list[int]](list)
    for n, side in enumerate(sides):
        if probed := next((run.result.transfer for run in side.runs if run.result.transfer), None):
            protocols[probed.protocol, probed.describe_probe()].append(n)
    for (protocol, probe), indices in protocols.items():
        grid = Grid(sides, computed, "transfer", indices=indices)
        if protocol == "finetune":
            kind, metric, what = "Fine-tuned", "accuracy × 100", "fine-tuned classifiers"
        else:
            kind, metric, what = "Transfer", f"accuracy × 100, protocol {protocol}", f"probes, protocol {probe}"
        scores.headlines.append(grid.headline(kind, metric))
        scores.blocks.extend(grid.blocks(f"Accuracy × 100 of {what}"))
    return scores


def seen_in_training(sides: Sequence[EvaluatedModel]) -> list[Block]:
    """What each side has seen of its tasks, in sentences; nothing where no training is known."""
    seen = {side.name: seen_of([run.result for run in side.runs]) for side in sides}
    return [notes("seen_by_models", seen)] if any(seen.values()) else []


def comparisons(
    sides: Sequence[EvaluatedModel], computed: AnyComparison | None, from_files: Sequence[tuple[str, AnyComparison]]
) -> list[Block]:
    """The comparison of the ``sides`` that was computed for this page, and those read from files."""
    titled = [(f"From {source}", comparison) for source, comparison in from_files]
    if computed is not None:
        named = [replace(old, name=side.name) for old, side in zip(computed.sides, sides, strict=True)]
        of_two = isinstance(computed, ComparisonResult)
        changes = {"first": named[0], "second": named[1]} if of_two else {"sides": named}
        title = f"Computed for this page: {computed.config.resamples:,} resamples, seed {computed.config.seed}"
        titled.insert(0, (title, replace(computed, **changes)))
    return [Section(title, _comparison(comparison)) for title, comparison in titled]


def _comparison(comparison: AnyComparison) -> list[Block]:
    first, *others = words.comparison_tables(comparison)
    if isinstance(comparison, PairwiseResult) and comparison.ranked:
        return [first, *others]
    return [first, *(Section(pair.title, [pair], folded=True) for pair in others)]


def held_out_tests(runs: Sequence[TrainingRun]) -> list[Block]:
    """A row and dots for each run with held-out test rows, its model before and after training, and its queries."""
    tested = [(run, run.tested) for run in runs if run.tested is not None]
    if not tested:
        return []
    rows: list[Row] = []
    of_runs = list[tuple[str, str]]()
    before, after = dict[str, Estimate](), dict[str, Estimate]()
    for run, comparison in tested:
        for task, row in run.tests.items():
            metric = words.metric_of(row)
            rows.append([run.name, metric, f"{row.pairs or 0:,}", *words.before_after_cells(row)])
            reasons = [f"{row.reason}."] * bool(row.reason)
            of_runs += [(run.name, note) for note in (*words.held_out_notes(comparison, task), *reasons)]
            if row.difference is not None:
                start = row.second or 0.0
                before[f"{run.name}, {metric}"] = Estimate(start, None, None)
                after[f"{run.name}, {metric}"] = Estimate(row.first, start + (row.low or 0), start + (row.high or 0))
    sentences = notes("tested_runs", of_runs, [run.held_out for run, _ in tested])
    columns = ["run", "metric × 100", "test rows", *words.BEFORE_AFTER]
    caption = "Held-out test rows × 100. Lines: the 95% interval of the difference, from the score before training."
    scores = {"before training": [*before.values()], "after training": [*after.values()]}
    blocks: list[Block] = [
        Table(title="Test on held-out rows", columns=columns, rows=rows, notes=sentences, left=2),
        *dots(caption, "Before and after training", [*before], scores),
    ]
    for run, comparison in tested:
        if (queries := words.queries_in_words(comparison, trained=True)) is not None:
            code = [Code("\n".join(queries.lines))] if queries.lines else []
            title = f"Queries before and after the training of {run.name}"
            blocks.append(Section(title, [queries.summary, *code]))
    return blocks
