"""Results as tables: the same rows as Markdown for files and as rich tables for screens. Nothing is printed here."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from nearfar.evaluation.correlation import AGGREGATES
from nearfar.evaluation.results import Result

_TITLES = {"spearman": "Spearman", "pearson": "Pearson"}


class _Grid(NamedTuple):
    """A table before it is Markdown or rich: sections are groups of rows, notes stand below."""

    title: str
    header: list[str]
    sections: list[list[list[str]]]
    notes: list[str]


def evaluation_table(result: Result, *, metric: str = "spearman", subsets: bool = False) -> Table:
    """An evaluation on screen: tasks by ``all``, ``mean`` and ``wmean``, with intervals, and the averages."""
    return _rich(_evaluation(result, metric, subsets=subsets))


def evaluation_markdown(result: Result) -> str:
    """An evaluation in Markdown: both metrics, with subsets and averages, and where the numbers come from."""
    grids = [_evaluation(result, metric, subsets=True) for metric in _TITLES]
    return _page(f"Evaluation of {result['model']}", grids, result)


def comparison_table(comparison: Result) -> Table:
    """A comparison on screen: both scores, their difference, its interval and p, and the verdict, per task."""
    return _rich(_comparison(comparison))


def comparison_markdown(comparison: Result) -> str:
    """A comparison in Markdown, and where its numbers come from."""
    title = f"{comparison['first']['name']} against {comparison['second']['name']}"
    return _page(title, [_comparison(comparison)], comparison)


def _evaluation(result: Result, metric: str, *, subsets: bool) -> _Grid:
    tasks = []
    for task, scored in result["tasks"].items():
        tasks.append([task, str(scored["pairs"]), *(_estimate(scored[metric][kind]) for kind in AGGREGATES)])
        if subsets and len(scored["subsets"]) > 1:
            for subset, held in scored["subsets"].items():
                tasks.append([f"{task} / {subset}", str(held["pairs"]), _estimate(held[metric]), "", ""])
    averages = [
        [f"average of {name}", "", *(_estimate(average[metric][kind]) for kind in AGGREGATES)]
        for name, average in result["averages"].items()
    ]
    title = f"{result['model']}: {_TITLES[metric]} x 100 [95% interval]"
    return _Grid(title, ["task", "pairs", *AGGREGATES], [tasks, averages], _evaluation_notes(result, metric))


def _evaluation_notes(result: Result, metric: str) -> list[str]:
    resamples, pooling = result["config"]["resamples"], result["config"]["pooling"]
    notes = [
        "all: over all pairs of a task; mean: average of its subsets; wmean: their average weighted by pairs.",
        *([f"Intervals: 95%, over {resamples} bootstrap resamples of pairs."] * bool(resamples)),
        *([f"Pooling: {pooling}."] * bool(pooling)),
        *(f"{task}: not evaluated. {why}" for task, why in result["unavailable"].items()),
    ]
    for name, scored in (result["tasks"] | result["averages"]).items():
        reasons: dict[str, list[str]] = {}
        for kind in AGGREGATES:
            if "reason" in scored[metric][kind]:
                reasons.setdefault(scored[metric][kind]["reason"], []).append(kind)
        notes += [f"{name}, {' and '.join(kinds)}: {reason}." for reason, kinds in reasons.items()]
        if scored.get("zero_vectors"):
            notes.append(f"{name}: {scored['zero_vectors']} pairs with a zero vector, their cosine taken as 0.")
    return notes


def _comparison(comparison: Result) -> _Grid:
    seeds = any(row["seeds"] for row in comparison["tasks"].values())
    tasks = [_comparison_row(task, row, seeds=seeds) for task, row in comparison["tasks"].items()]
    overall = [_comparison_row("average", comparison["overall"], seeds=seeds)]
    header = ["task", "first", "second", "first - second", "p", "p (Holm)", *["p over seeds"] * seeds, "verdict"]
    aggregate = comparison["config"]["aggregate"]
    title = f"Spearman x 100 ({aggregate}): first {_side(comparison['first'])}, second {_side(comparison['second'])}"
    return _Grid(title, header, [tasks, overall], _comparison_notes(comparison, seeds=seeds))


def _comparison_row(name: str, row: dict[str, Any], *, seeds: bool) -> list[str]:
    if row["difference"] is None:
        return [name, _number(row["first"]), _number(row["second"]), "", "", "", *[""] * seeds, "undefined"]
    better = "first better" if row["difference"] > 0 else "second better"
    return [
        name,
        _number(row["first"]),
        _number(row["second"]),
        f"{row['difference']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}]",
        f"{row['p']:.4f}",
        f"{row['p_holm']:.4f}" if "p_holm" in row else "",
        *([f"{row['seeds']['p']:.4f}" if row["seeds"] else ""] if seeds else []),
        better if row["separable"] else "not separable",
    ]


def _comparison_notes(comparison: Result, *, seeds: bool) -> list[str]:
    config, overall = comparison["config"], comparison["overall"]
    notes = [
        f"Interval and p: paired bootstrap over pairs, {config['resamples']} resamples, the same for both sides; "
        "they speak of other pairs. p (Holm) is corrected for the number of tasks; "
        f"separable: p (Holm), or for the average p, below {config['level']}.",
        f"average: over {', '.join(overall['tasks'])}.",
    ]
    if seeds:
        tests = sorted({row["seeds"]["test"] for row in comparison["tasks"].values() if row["seeds"]})
        notes.append(f"p over seeds: {' or '.join(tests)}; it speaks of other training runs, and is not corrected.")
    rows = {**comparison["tasks"], "average": overall}
    notes += [f"{name}: {row['reason']}." for name, row in rows.items() if "reason" in row]
    if comparison["not_compared"]:
        notes.append(f"Not compared, as not all have them: {', '.join(comparison['not_compared'])}.")
    return notes


def _side(side: dict[str, Any]) -> str:
    runs = len(side["models"])
    return side["name"] if runs == 1 else f"{side['name']} (mean of {runs} runs)"


def _number(score: float | None) -> str:
    return "undefined" if score is None else f"{score:.2f}"


def _estimate(estimate: dict[str, Any]) -> str:
    if estimate["low"] is None:
        return _number(estimate["score"])
    return f"{estimate['score']:.2f} [{estimate['low']:.1f}, {estimate['high']:.1f}]"


def _rich(grid: _Grid) -> Table:
    table = Table(title=Text(grid.title), caption=Text("\n".join(grid.notes)), caption_justify="left")
    for number, name in enumerate(grid.header):
        table.add_column(Text(name), justify="left" if number == 0 else "right")
    for section in grid.sections:
        for row in section:
            table.add_row(*(Text(cell) for cell in row))  # Text: a bracket in a name or an interval is no markup
        table.add_section()
    return table


def _page(title: str, grids: Iterable[_Grid], result: Result) -> str:
    lines = [f"# {title}"]
    for grid in grids:
        lines += ["", f"## {grid.title}", "", *_markdown(grid), *(f"\n{note}" for note in grid.notes)]
    origin = result["provenance"]
    versions = ", ".join(f"{name} {version}" for name, version in origin["versions"].items() if version)
    hardware = ", ".join(str(value) for value in origin["hardware"].values() if value)
    lines += ["", f"`{origin['command']}`, {origin['date']}, commit {origin['commit']}; {versions}; {hardware}."]
    return "\n".join(lines) + "\n"


def _markdown(grid: _Grid) -> list[str]:
    rule = ["---", *["---:"] * (len(grid.header) - 1)]
    return [_markdown_row(row) for row in (grid.header, rule, *(row for section in grid.sections for row in section))]


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
