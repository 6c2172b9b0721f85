"""The page of a report: summary, tests of runs, scores and comparisons; what follows is in ``sections``."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from nearfar.data.retrieval import MEASURES
from nearfar.evaluation.correlation import AGGREGATES, Aggregate
from nearfar.evaluation.render import Cell, Table
from nearfar.evaluation.report.blocks import DASH, Block, BulletList, Code, Details, Page, Paragraph, Section
from nearfar.evaluation.report.inputs import EvaluatedModel, ReportInputs, TrainingRun
from nearfar.evaluation.report.scores import METRICS, AnyComparison, Grid
from nearfar.evaluation.report.sections import geometry_blocks, outcome, settings, training
from nearfar.evaluation.results import ComparisonResult, EvaluationResult, GeometryResult
from nearfar.evaluation.tables.comparison import (
    BEFORE_AFTER,
    before_after_cells,
    comparison_table,
    format_difference,
    held_out_notes,
    metric_of,
    pairwise_table,
    queries_in_words,
    verdict_in_words,
)
from nearfar.evaluation.tables.evaluation import LEGEND, format_seen, mean_score, seen_notes, seen_of

MAX_MISSING_SHOWN = 6
"""Up to this number, missing items are listed at the top; more are in a block to open."""
_AGGREGATES = {
    "all": "over all pairs of a task together (all)",
    "mean": "the average of a task's subsets (mean)",
    "wmean": "the average of a task's subsets, weighted by pairs (wmean)",
}


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
    similar, ranked = Grid(sides, computed, "similarity", aggregate=aggregate), Grid(sides, computed, "retrieval")
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
                f"training, {row.first:.2f} after, {format_difference(row)}: {verdict_in_words(row)}."
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


def similarity(sides: Sequence[EvaluatedModel], computed: AnyComparison | None, aggregate: Aggregate) -> list[Block]:
    """Spearman by the chosen aggregate; the other aggregates and Pearson in a block to open."""
    main, *others = (
        Grid(sides, computed, "similarity", metric=metric, aggregate=kind).table(
            f"{METRICS[metric]} × 100, {_AGGREGATES[kind]}"
        )
        for metric in ("spearman", "pearson")
        for kind in dict.fromkeys((aggregate, *AGGREGATES))
    )
    return [main, Details("Other averages of subsets, and Pearson", others)] if main.rows else []


def retrieval(sides: Sequence[EvaluatedModel], computed: AnyComparison | None) -> list[Block]:
    """The main measure of each task; all measures in a block to open."""
    main = Grid(sides, computed, "retrieval").table("Retrieval × 100, means over queries")
    others = [Grid(sides, computed, "retrieval", metric=measure).table(f"{measure} × 100") for measure in MEASURES]
    return [main, Details("All measures of retrieval", others)] if main.rows else []


def transfer_grids(sides: Sequence[EvaluatedModel], computed: AnyComparison | None) -> dict[tuple[str, str], Grid]:
    """(Protocol, all settings of the probes in words) -> the sides whose runs were all probed in this way."""
    protocols: dict[tuple[str, str], list[int]] = {}
    for n, side in enumerate(sides):
        used = {_protocol(run.result) for run in side.runs}
        if len(used) == 1 and (protocol := used.pop()) is not None:
            protocols.setdefault(protocol, []).append(n)
    return {protocol: Grid(sides, computed, "transfer", indices=indices) for protocol, indices in protocols.items()}


def _protocol(result: EvaluationResult) -> tuple[str, str] | None:
    return None if result.transfer is None else (result.transfer.protocol, result.transfer.describe_probe())


def transfer(sides: Sequence[EvaluatedModel], computed: AnyComparison | None) -> list[Block]:
    """Accuracies of probes, a table for each protocol."""
    grids = transfer_grids(sides, computed)
    blocks: list[Block] = [
        grid.table(
            f"Accuracy × 100 of {'fine-tuned classifiers' if name == 'finetune' else f'probes, protocol {probe}'}"
        )
        for (name, probe), grid in grids.items()
    ]
    shown = {n for grid in grids.values() for n in grid.indices}
    return blocks + [
        Paragraph(f"{side.name} is left out: not all of its runs were probed, or not with the same protocol.")
        for n, side in enumerate(sides)
        if n not in shown and any(run.result.transfer for run in side.runs)
    ]


def seen_in_training(sides: Sequence[EvaluatedModel]) -> list[Block]:
    """A table with a row for each side whose training is known, and a column for each task; none if none is known."""
    seen = [(side, seen_of([run.result for run in side.runs])) for side in sides]
    tasks = list(dict.fromkeys(task for _, known in seen for task in known))
    if not tasks:
        return []
    rows: list[list[Cell | str]] = []
    notes = [LEGEND]
    for side, known in seen:
        if known:
            cells = [Cell(format_seen(known[task]), _unseen(side, task)) if task in known else DASH for task in tasks]
            rows.append([side.name, *cells])
            notes += [f"{side.name}: {note}" for note in seen_notes(known)]
    if any(0 < len(known) < len(tasks) for _, known in seen):
        notes.append(f"{DASH}: not evaluated.")
    if unknown := [side.name for side, known in seen if not known]:
        notes.append(f"Not in the table, because their training left no record: {', '.join(unknown)}.")
    caption = "Share of the pairs (in brackets: of the texts), and Spearman × 100 on the unseen pairs"
    return [Table(title=caption, columns=["model", *tasks], rows=rows, notes=notes)]


def _unseen(side: EvaluatedModel, task: str) -> str:
    """The score on the unseen pairs, for several runs the mean."""
    unseen = [scored.unseen for run in side.runs if (scored := run.result.tasks.get(task)) is not None]
    score = mean_score([None if one is None else one.spearman.score for one in unseen])
    return "" if score is None else f"unseen {score:.2f}"


def comparisons(
    sides: Sequence[EvaluatedModel], computed: AnyComparison | None, from_files: Sequence[tuple[str, AnyComparison]]
) -> list[Block]:
    """The comparison of the ``sides`` that was computed for this page, and those read from files."""
    blocks: list[Block] = []
    if computed is not None:
        title = f"Computed for this page: {computed.config.resamples:,} resamples, seed {computed.config.seed}"
        blocks.append(Section(title, _comparison(renamed(computed, sides))))
    return blocks + [Section(f"From {source}", _comparison(comparison)) for source, comparison in from_files]


def renamed(comparison: AnyComparison, sides: Sequence[EvaluatedModel]) -> AnyComparison:
    """A comparison of these sides, under the names that they have on this page."""
    named = [replace(old, name=side.name) for old, side in zip(comparison.sides, sides, strict=True)]
    if isinstance(comparison, ComparisonResult):
        return replace(comparison, first=named[0], second=named[1])
    return replace(comparison, sides=named)


def _comparison(comparison: AnyComparison) -> list[Block]:
    if isinstance(comparison, ComparisonResult):
        return [comparison_table(comparison)]
    tables = []
    for tests in comparison.comparisons:
        pair = comparison.between(tests)
        tables.append(Details(f"{pair.first.name} against {pair.second.name}", [comparison_table(pair)]))
    return [pairwise_table(comparison), *tables]


def held_out_tests(runs: Sequence[TrainingRun]) -> list[Block]:
    """A row for each run with held-out test rows: its model before and after training."""
    tested = [run for run in runs if run.tested is not None]
    if not tested:
        return []
    rows: list[list[Cell | str]] = []
    notes = ["Each run is compared with the model that its training started from, on rows that it held out to test on."]
    for run in tested:
        for task, row in run.tests.items():
            rows.append([run.name, metric_of(row), f"{row.pairs or 0:,}", *before_after_cells(row)])
            assert run.tested is not None
            notes += [f"{run.name}: {note}" for note in held_out_notes(run.tested, task)]
            notes += [f"{run.name}: {row.reason}."] * bool(row.reason)
    if len(tested) > 1:
        same = len({run.held_out for run in tested}) == 1
        notes.append(
            "The runs hold out the same rows; nearfar compare RUN RUN --held-out tests one against the other."
            if same
            else "The runs hold out different rows, so the scores of different runs cannot be compared."
        )
    columns = ["run", "metric × 100", "test rows", *BEFORE_AFTER]
    table = Table(title="Test on held-out rows", columns=columns, rows=rows, notes=notes, left=2)
    queries = {run.name: queries_in_words(run.tested, trained=True) for run in tested if run.tested}
    return [
        table,
        *(
            Section(
                f"Queries before and after the training of {name}",
                [Paragraph(shown.summary), Code("\n".join(shown.lines))],
            )
            for name, shown in queries.items()
            if shown
        ),
    ]
