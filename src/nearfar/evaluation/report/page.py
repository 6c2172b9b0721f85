"""The sections of a report: summary, scores, retrieval, comparisons, transfer tasks, training, geometry, settings."""

from collections.abc import Sequence

from nearfar.evaluation.correlation import Aggregate
from nearfar.evaluation.report.blocks import Block, BulletList, Details, Page, Section
from nearfar.evaluation.report.columns import (
    AnyComparison,
    Column,
    Score,
    SignificanceLookup,
    retrieval_columns,
    similarity_columns,
    transfer_columns,
)
from nearfar.evaluation.report.inputs import EvaluatedModel, ReportInputs, TrainingRun
from nearfar.evaluation.report.scores import (
    RankedColumn,
    indices_by_protocol,
    rank_column,
    retrieval,
    retrieval_indices,
    seen_in_training,
    similarity,
    similarity_indices,
    transfer,
)
from nearfar.evaluation.report.sections import comparisons, geometry_blocks, outcome, settings, training
from nearfar.evaluation.results import GeometryResult, PairedTest

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


def summary(inputs: ReportInputs, significance: SignificanceLookup, aggregate: Aggregate) -> list[str]:
    """Sentences about scores, retrieval, transfer tasks, training runs and geometries."""
    sides = inputs.sides
    lines = []
    indices = similarity_indices(sides)
    if indices:
        columns = similarity_columns([sides[number] for number in indices], "spearman", aggregate)
        lines.append(_headline(sides, indices, columns, significance, ("Similarity", f"Spearman × 100, {aggregate}")))
    ranked = retrieval_indices(sides)
    if ranked:
        columns = retrieval_columns([sides[number] for number in ranked], None)
        lines.append(_headline(sides, ranked, columns, significance, ("Retrieval", "means over queries × 100")))
    for (protocol, *_), probed in indices_by_protocol(sides).items():
        columns = transfer_columns([sides[number] for number in probed])
        lines.append(_headline(sides, probed, columns, significance, _title(protocol)))
    if inputs.runs:
        lines += _training(inputs.runs)
    for _, result in inputs.geometries:
        lines += _geometry(result)
    return lines


def _headline(
    sides: Sequence[EvaluatedModel],
    indices: Sequence[int],
    columns: Sequence[Column],
    significance: SignificanceLookup,
    what: tuple[str, str],
) -> str:
    """The best side on the average that most sides have, and the sides that are not significantly different from it."""
    grid = [rank_column(sides, indices, column) for column in columns]
    chosen = max(
        grid,
        key=lambda one: (
            one.column.average is not None and _score_count(one) >= min(2, len(indices)),
            _score_count(one),
        ),
    )
    title = chosen.column.title if chosen.column.average is not None else f"task {chosen.column.title}"
    place = f"{what[0]}, {title} ({what[1]})"
    if chosen.problem:
        return f"{place}: {chosen.problem}."
    if not chosen.best:
        alone = next((n for n in indices if (one := chosen.scores[n]) is not None and one.value is not None), None)
        return f"{place}: no score." if alone is None else f"{place}: {_format_score(sides, chosen, alone)}."
    best = chosen.best[0]
    if len(chosen.best) > 1:
        return f"{place}: {' and '.join(sides[n].name for n in chosen.best)} have the same highest score."
    others = [n for n in indices if n != best and (one := chosen.scores[n]) is not None and one.value is not None]
    sentence = f"{place}: the best of {len(others) + 1} is {_format_score(sides, chosen, best)}."
    tests = {other: significance.test(chosen.column, best, other, chosen.scores) for other in others}
    parts = (
        (
            "It is significantly better than",
            [_format_test(sides[n], test) for n, test in tests.items() if test and test.separable],
        ),
        (
            "It is not significantly different from",
            [_format_test(sides[n], test) for n, test in tests.items() if test and test.separable is False],
        ),
        ("Not tested against it:", [sides[n].name for n, test in tests.items() if not test]),
        ("No score:", [sides[n].name for n in indices if n != best and n not in others]),
    )
    return " ".join([sentence, *(f"{words} {', '.join(names)}." for words, names in parts if names)])


def _score_count(one: RankedColumn) -> int:
    return sum(score is not None and score.value is not None for score in one.scores)


def _format_score(sides: Sequence[EvaluatedModel], one: RankedColumn, number: int) -> str:
    score = one.scores[number] or Score(None)
    if score.sd is not None:
        spread = f" (mean of {len(sides[number].runs)} seeds, standard deviation {score.sd:.2f})"
    else:
        spread = f" [{score.low:.1f}, {score.high:.1f}]" if score.low is not None and score.high is not None else ""
    return f"{sides[number].name} with {score.value:.2f}{spread}"


def _format_test(side: EvaluatedModel, test: PairedTest) -> str:
    p = test.p if test.p_holm is None else test.p_holm
    shown = f"p {p:.4f}" if p is None or p >= 1e-4 else "p < 0.0001"
    return f"{side.name} (by {test.difference:.2f} [{test.low:.2f}, {test.high:.2f}], {shown})"


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


def _title(protocol: str) -> tuple[str, str]:
    """What was scored, and how."""
    if protocol == "finetune":
        return "Fine-tuned", "accuracy × 100"
    return "Transfer", f"accuracy × 100, protocol {protocol}"
