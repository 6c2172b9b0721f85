"""The page of a report: summary, tests of runs, scores and comparisons; what follows is in ``sections``."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from nearfar.data.retrieval import MEASURES
from nearfar.evaluation.correlation import AGGREGATES, Aggregate
from nearfar.evaluation.render import Cell, Table
from nearfar.evaluation.report.blocks import DASH, Bar, Bars, Block, Code, Figure, Section
from nearfar.evaluation.report.inputs import EvaluatedModel, ReportInputs, TrainingRun
from nearfar.evaluation.report.scores import MAX_BARS, AnyComparison, Grid
from nearfar.evaluation.report.sections import geometry_blocks, outcome, settings, training
from nearfar.evaluation.results import ComparisonResult, PairwiseResult, TaskTest
from nearfar.evaluation.tables import comparison as words
from nearfar.evaluation.tables.evaluation import LEGEND, format_seen, mean_score, seen_notes, seen_of
from nearfar.types import metric_title

MAX_MISSING_SHOWN = 6
"""Up to this number, missing items are listed at the top; more are in a block to open."""
_AGGREGATES = {
    "all": "over all pairs of a task together (all)",
    "mean": "the average of a task's subsets (mean)",
    "wmean": "the average of a task's subsets, weighted by pairs (wmean)",
}


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
    sides = inputs.sides
    missing = list(inputs.missing)
    for side in sides:
        why = {task: reason for run in side.runs for task, reason in run.result.unavailable.items()}
        missing += [f"{side.name}: {task} was not evaluated. {reason}" for task, reason in why.items()]
    top: list[Block] = [summary(inputs, computed, aggregate)]
    if missing:
        short = len(missing) <= MAX_MISSING_SHOWN
        listed = missing if short else Section(f"All {len(missing)} items", [missing], folded=True)
        top.append(Section("What is missing", [listed]))
    tuned = {protocol for protocol, _ in _protocols(sides)} == {"finetune"}
    sections = {
        "Summary": top,
        "Test on held-out rows": held_out_tests(inputs.runs),
        "Similarity": similarity(sides, computed, aggregate),
        "Retrieval": retrieval(sides, computed),
        "Comparisons": comparisons(sides, computed, inputs.comparisons),
        "Fine-tuned classifiers" if tuned else "Transfer tasks": transfer(sides, computed),
        "Seen in training": seen_in_training(sides),
        "Training": training(inputs.runs) if inputs.runs else [],
        "Geometry": geometry_blocks(inputs.geometries),
        "Settings and provenance": settings(inputs),
    }
    return Section(title, [Section(name, blocks) for name, blocks in sections.items() if blocks])


def summary(inputs: ReportInputs, computed: AnyComparison | None, aggregate: Aggregate) -> list[str]:
    """Sentences, tests first: of training runs, then scores, retrieval, transfer tasks, and training."""
    sides = inputs.sides
    grids = [
        (Grid(sides, computed, "similarity", aggregate=aggregate), "Similarity", f"Spearman × 100, {aggregate}"),
        (Grid(sides, computed, "retrieval"), "Retrieval", "means over queries × 100"),
    ]
    for (protocol, _), indices in _protocols(sides).items():
        kind, how = ("Fine-tuned", "") if protocol == "finetune" else ("Transfer", f", protocol {protocol}")
        grids.append((Grid(sides, computed, "transfer", indices=indices), kind, f"accuracy × 100{how}"))
    return [
        *_tests(inputs.runs, [side.name for side in sides]),
        *(grid.headline(kind, metric) for grid, kind, metric in grids if grid.indices),
        *([_training(inputs.runs)] if inputs.runs else []),
    ]


def _tests(runs: Sequence[TrainingRun], evaluated: Collection[str]) -> list[str]:
    """The test results of training runs, those without one, and what the dev scores warn of."""
    lines = [
        f"{run.name}, {words.metric_of(row)} × 100 on {row.pairs or 0:,} held-out test rows: "
        f"{words.before_after_sentence(row)}"
        for run in runs
        for row in run.tests.values()
    ]
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


def similarity(sides: Sequence[EvaluatedModel], computed: AnyComparison | None, aggregate: Aggregate) -> list[Block]:
    """Spearman by the chosen aggregate; the other aggregates and Pearson in a block to open."""
    grid = Grid(sides, computed, "similarity", aggregate=aggregate)
    if not grid.indices:
        return []
    tables = [
        Grid(sides, computed, "similarity", metric=metric, aggregate=kind).table(
            f"{metric_title(metric)} × 100, {_AGGREGATES[kind]}"
        )
        for metric in ("spearman", "pearson")
        for kind in dict.fromkeys((aggregate, *AGGREGATES))
    ]
    figure = grid.figure(f"Spearman × 100, {_AGGREGATES[aggregate]}")
    return [tables[0], *figure, Section("Other averages of subsets, and Pearson", tables[1:], folded=True)]


def retrieval(sides: Sequence[EvaluatedModel], computed: AnyComparison | None) -> list[Block]:
    """The main measure of each task; all measures in a block to open."""
    grid = Grid(sides, computed, "retrieval")
    if not grid.indices:
        return []
    every = [Grid(sides, computed, "retrieval", metric=one).table(f"{one} × 100") for one in MEASURES]
    caption = "Retrieval × 100, means over queries"
    return [grid.table(caption), *grid.figure(caption), Section("All measures of retrieval", every, folded=True)]


def _protocols(sides: Sequence[EvaluatedModel]) -> dict[tuple[str, str], list[int]]:
    """(Protocol, all settings of the probes in words) -> the sides whose runs were all probed in this way."""
    protocols: dict[tuple[str, str], list[int]] = {}
    for n, side in enumerate(sides):
        used = {(one.protocol, one.describe_probe()) if (one := run.result.transfer) else None for run in side.runs}
        if len(used) == 1 and (protocol := used.pop()) is not None:
            protocols.setdefault(protocol, []).append(n)
    return protocols


def transfer(sides: Sequence[EvaluatedModel], computed: AnyComparison | None) -> list[Block]:
    """Accuracies of probes, a table for each protocol."""
    blocks: list[Block] = []
    shown: set[int] = set()
    for (name, probe), indices in _protocols(sides).items():
        caption = f"Accuracy × 100 of {'fine-tuned classifiers' if name == 'finetune' else f'probes, protocol {probe}'}"
        grid = Grid(sides, computed, "transfer", indices=indices)
        blocks += [grid.table(caption), *grid.figure(caption)]
        shown.update(indices)
    return blocks + [
        f"{side.name} is left out: not all of its runs were probed, or not with the same protocol."
        for n, side in enumerate(sides)
        if n not in shown and any(run.result.transfer for run in side.runs)
    ]


def seen_in_training(sides: Sequence[EvaluatedModel]) -> list[Block]:
    """A table with a row for each side whose training is known, and a column for each task; none if none is known."""
    seen = {side.name: seen_of([run.result for run in side.runs]) for side in sides}
    tasks = list(dict.fromkeys(task for known in seen.values() for task in known))
    if not tasks:
        return []
    rows: list[list[Cell | str]] = []
    for side in sides:
        known = seen[side.name]
        cells = [Cell(format_seen(known[task]), _unseen(side, task)) if task in known else DASH for task in tasks]
        rows += [[side.name, *cells]] if known else []
    notes = [LEGEND, *(f"{name}: {note}" for name, known in seen.items() for note in seen_notes(known))]
    notes += [f"{DASH}: not evaluated."] * any(0 < len(known) < len(tasks) for known in seen.values())
    if unknown := [name for name, known in seen.items() if not known]:
        notes.append(f"Not in the table, because their training left no record: {', '.join(unknown)}.")
    caption = "Share of the pairs (in brackets: of the texts), and Spearman × 100 on the unseen pairs"
    return [Table(title=caption, columns=["model", *tasks], rows=rows, notes=notes)]


def _unseen(side: EvaluatedModel, task: str) -> str:
    """The score on the unseen pairs, for several runs the mean."""
    unseen = [run.result.tasks[task].unseen for run in side.runs if task in run.result.tasks]
    score = mean_score([None if scores is None else scores.spearman.score for scores in unseen])
    return "" if score is None else f"unseen {score:.2f}"


def comparisons(
    sides: Sequence[EvaluatedModel], computed: AnyComparison | None, from_files: Sequence[tuple[str, AnyComparison]]
) -> list[Block]:
    """The comparison of the ``sides`` that was computed for this page, and those read from files."""
    titled = [(f"From {source}", comparison) for source, comparison in from_files]
    if computed is not None:
        title = f"Computed for this page: {computed.config.resamples:,} resamples, seed {computed.config.seed}"
        titled.insert(0, (title, renamed(computed, sides)))
    return [Section(title, _comparison(comparison)) for title, comparison in titled]


def renamed(comparison: AnyComparison, sides: Sequence[EvaluatedModel]) -> AnyComparison:
    """A comparison of these sides, under the names that they have on this page."""
    named = [replace(old, name=side.name) for old, side in zip(comparison.sides, sides, strict=True)]
    if isinstance(comparison, ComparisonResult):
        return replace(comparison, first=named[0], second=named[1])
    return replace(comparison, sides=named)


def _comparison(comparison: AnyComparison) -> list[Block]:
    tables = words.comparison_tables(comparison)
    if isinstance(comparison, PairwiseResult) and comparison.ranked:
        return [*tables]
    return [tables[0], *(Section(pair.title, [pair], folded=True) for pair in tables[1:])]


def held_out_tests(runs: Sequence[TrainingRun]) -> list[Block]:
    """A row and bars for each run with held-out test rows, its model before and after training, and its queries."""
    tested = [(run, run.tested) for run in runs if run.tested is not None]
    if not tested:
        return []
    rows: list[list[Cell | str]] = []
    notes = ["Each run is compared with the model that its training started from, on rows that it held out to test on."]
    for run, comparison in tested:
        for task, row in comparison.tasks.items():
            cells = words.before_after_cells(row)
            rows.append([run.name, words.metric_of(row), f"{row.pairs or 0:,}", *cells])
            notes += [f"{run.name}: {note}" for note in words.held_out_notes(comparison, task)]
            notes += [f"{run.name}: {row.reason}."] * bool(row.reason)
    if len(tested) > 1:
        same = len({run.held_out for run, _ in tested}) == 1
        notes.append(
            "The runs hold out the same rows; nearfar compare RUN RUN --held-out tests one against the other."
            if same
            else "The runs hold out different rows, so the scores of different runs cannot be compared."
        )
    columns = ["run", "metric × 100", "test rows", *words.BEFORE_AFTER]
    blocks: list[Block] = [Table(title="Test on held-out rows", columns=columns, rows=rows, notes=notes, left=2)]
    tests = [(run.name, row) for run, _ in tested for row in run.tests.values() if row.difference is not None]
    if shown := tests[: MAX_BARS // 2]:  # up to as many as are easy to read
        blocks.append(_before_after_bars(shown))
    for run, comparison in tested:
        if (queries := words.queries_in_words(comparison, trained=True)) is not None:
            code: list[Block] = [Code("\n".join(queries.lines))] if queries.lines else []
            blocks.append(Section(f"Queries before and after the training of {run.name}", [queries.summary, *code]))
    return blocks


def _before_after_bars(tests: Sequence[tuple[str, TaskTest]]) -> Figure:
    """Two bars for each test."""
    spans = [((row.second or 0) + (row.low or 0), (row.second or 0) + (row.high or 0)) for _, row in tests]
    before = Bar("before training", 1, [row.second for _, row in tests], [None] * len(tests))
    after = Bar("after training", 0, [row.first for _, row in tests], spans)
    names = [f"{name}, {words.metric_of(row)}" for name, row in tests]
    caption = "Held-out test rows × 100. Lines: the 95% interval of the difference, from the score before training."
    return Figure(caption, [Bars("Before and after training", names, [before, after])])
