"""Results as tables: the same rows as Markdown for files and as rich tables for screens. Nothing is printed here."""

from collections.abc import Iterable, Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from nearfar.evaluation.correlation import AGGREGATES
from nearfar.evaluation.results import Result

_AVERAGES = {"overall": "average", "overall_transfer": "average accuracy"}
_TITLES = {"spearman": "Spearman", "pearson": "Pearson"}


class Grid(NamedTuple):
    """A table before it is Markdown or rich: sections are groups of rows, notes stand below."""

    title: str
    header: list[str]
    sections: list[list[list[str]]]
    notes: list[str]


def evaluation_tables(result: Result, *, metric: str = "spearman", subsets: bool = False) -> list[Table]:
    """An evaluation on screen: similarity by ``all``, ``mean`` and ``wmean``, transfer tasks, and the averages."""
    return [rich_table(grid) for grid in _evaluation_grids(result, [metric], subsets=subsets)]


def evaluation_markdown(result: Result) -> str:
    """An evaluation in Markdown: both metrics, with subsets and averages, and where the numbers come from."""
    grids = _evaluation_grids(result, list(_TITLES), subsets=True)
    return page(f"Evaluation of {result['model']}", grids, result)


def spread_table(runs: Sequence[Result]) -> Table:
    """Evaluations of one setting with several seeds on screen: mean, standard deviation, minimum and maximum."""
    rows = [_spread(task, [run["tasks"][task]["spearman"]["all"] for run in runs]) for task in runs[0]["tasks"]]
    averages = [
        _spread(f"average of {name}", [run["averages"][name]["spearman"]["all"] for run in runs])
        for name in runs[0]["averages"]
    ]
    transfer = [run.get("transfer", {"tasks": {}, "averages": {}}) for run in runs]
    for task, scored in transfer[0]["tasks"].items():
        metric = "accuracy" if scored["kind"] == "classification" else "pearson"
        rows.append(_spread(f"{task}, {metric}", [one["tasks"][task][metric] for one in transfer]))
    for name in transfer[0]["averages"]:
        averages.append(_spread(f"average of {name}", [one["averages"][name]["accuracy"] for one in transfer]))
    title = f"{runs[0]['model']}: {len(runs)} runs, Spearman x 100 (all), or accuracy or Pearson x 100"
    header = ["task", "mean", "standard deviation", "minimum", "maximum"]
    return rich_table(Grid(title, header, [rows, averages], []))


def _spread(name: str, estimates: Sequence[dict[str, Any]]) -> list[str]:
    scores = [estimate["score"] for estimate in estimates]
    if None in scores:
        return [name, "undefined", "", "", ""]
    deviation = f"{stdev(scores):.2f}" if len(scores) > 1 else ""
    return [name, f"{mean(scores):.2f}", deviation, f"{min(scores):.2f}", f"{max(scores):.2f}"]


def comparison_table(comparison: Result) -> Table:
    """A comparison on screen: both scores, their difference, its interval and p, and the verdict, per task."""
    return rich_table(comparison_grid(comparison))


def comparison_markdown(comparison: Result) -> str:
    """A comparison in Markdown, and where its numbers come from."""
    title = f"{comparison['first']['name']} against {comparison['second']['name']}"
    return page(title, [comparison_grid(comparison)], comparison)


def comparisons_table(comparisons: Result) -> Table:
    """Several sides on screen: a column for each, the best of each task marked, and who is not separable from it."""
    return rich_table(comparisons_grid(comparisons))


def comparisons_markdown(comparisons: Result) -> str:
    """Several sides in Markdown, then each two of them."""
    names = [side["name"] for side in comparisons["sides"]]
    grids = [comparisons_grid(comparisons)]
    for one in comparisons["comparisons"]:
        first, second = (comparisons["sides"][number] for number in one["pair"])
        grids.append(comparison_grid({**comparisons, **one, "first": first, "second": second, "not_compared": []}))
    return page(", ".join(names), grids, comparisons)


def _evaluation_grids(result: Result, metrics: Sequence[str], *, subsets: bool) -> list[Grid]:
    grids = [_evaluation(result, metric, subsets=subsets) for metric in metrics] if result["tasks"] else []
    if "transfer" in result:
        grids.append(_transfer(result))
    missing = [f"{task}: not evaluated. {why}" for task, why in result["unavailable"].items()]
    if result["config"].get("transductive"):
        missing.append("Fitted on the very texts of each task, without their scores (transductive).")
    return [*grids[:-1], grids[-1]._replace(notes=[*grids[-1].notes, *missing])]


def _evaluation(result: Result, metric: str, *, subsets: bool) -> Grid:
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
    return Grid(title, ["task", "pairs", *AGGREGATES], [tasks, averages], _evaluation_notes(result, metric))


def _evaluation_notes(result: Result, metric: str) -> list[str]:
    resamples, pooling = result["config"]["resamples"], result["config"]["pooling"]
    notes = [
        "all: over all pairs of a task; mean: average of its subsets; wmean: their average weighted by pairs.",
        *([f"Intervals: 95%, over {resamples} bootstrap resamples of pairs."] * bool(resamples)),
        *([f"Pooling: {pooling}."] * bool(pooling)),
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


def _transfer(result: Result) -> Grid:
    """Probes, or what was fine-tuned: accuracy, F1 where there is one, and correlations of learned relatedness."""
    transfer = result["transfer"]
    tasks, notes = [], []
    for task, scored in transfer["tasks"].items():
        classifies = scored["kind"] == "classification"
        main = scored["accuracy" if classifies else "pearson"]
        others = [(title, scored[key]) for key, title in (("f1", "F1"), ("matthews", "Matthews")) if key in scored]
        others += [] if classifies else [("Spearman", scored["spearman"])]
        beside = ", ".join(f"{name} {_estimate(estimate)}" for name, estimate in others)
        rows = str(scored["rows" if classifies else "pairs"])
        tasks.append([task, rows, "accuracy" if classifies else "Pearson", _estimate(main), beside])
        if "reason" in main:
            notes.append(f"{task}: {main['reason']}.")
    averages = [
        [f"average of {name}", "", "accuracy", _estimate(average["accuracy"]), ""]
        for name, average in transfer["averages"].items()
    ]
    hidden = f", {transfer['nhid']} hidden units" if transfer["nhid"] else ""
    resamples = result["config"]["resamples"]
    tuned = transfer["protocol"] == "finetune"
    notes.insert(0, "" if tuned else f"Probes by the protocol {transfer['protocol']}{hidden}.")
    if resamples:
        notes.insert(1, f"Intervals: 95%, over {resamples} bootstrap resamples of the tested rows.")
    title = f"{result['model']}: {'fine-tuned' if tuned else 'transfer tasks'}, x 100 [95% interval]"
    return Grid(title, ["task", "rows", "metric", "score", "also"], [tasks, averages], [note for note in notes if note])


def comparison_grid(comparison: Result) -> Grid:
    """A comparison of two sides: a row for each task and average."""
    seeds = any(row["seeds"] for row in comparison["tasks"].values())
    tasks = [
        _comparison_row(f"{task}, accuracy" if row.get("kind") == "classification" else task, row, seeds=seeds)
        for task, row in comparison["tasks"].items()
    ]
    averages = [_comparison_row(name, row, seeds=seeds) for name, row in _averages(comparison)]
    over_seeds = ["p over seeds", "by ranks"] if seeds else []
    header = ["task", "first", "second", "first - second", "p", "p (Holm)", *over_seeds, "verdict"]
    accuracies = all(row.get("kind") == "classification" for row in comparison["tasks"].values())
    what = "Accuracy x 100" if accuracies else f"Spearman x 100 ({comparison['config']['aggregate']})"
    title = f"{what}: first {_side(comparison['first'])}, second {_side(comparison['second'])}"
    return Grid(title, header, [tasks, averages], _comparison_notes(comparison, seeds=seeds))


def comparisons_grid(comparisons: Result) -> Grid:
    """Several sides: a column for each, the best of each row marked."""
    pairs = {tuple(one["pair"]): one for one in comparisons["comparisons"]}
    first = pairs[0, 1]
    names = [(task, task, "tasks") for task in first["tasks"]]
    averages = [(name, key, "") for key, name in _AVERAGES.items() if first[key] is not None]
    sides = range(len(comparisons["sides"]))

    def row_of(one: dict[str, Any], key: str, group: str) -> dict[str, Any]:
        found: dict[str, Any] = one[group][key] if group else one[key]
        return found

    def line(name: str, key: str, group: str) -> list[str]:
        against = {pair: row_of(one, key, group) for pair, one in pairs.items()}
        values = [against[0, side]["second"] if side else against[0, 1]["first"] for side in sides]
        best = max((side for side in sides if values[side] is not None), key=lambda side: values[side], default=None)
        cells = []
        for side in sides:
            mark = ""
            if side == best:
                mark = " *"
            elif best is not None and against[min(side, best), max(side, best)]["separable"] is False:
                mark = " ="
            cells.append(_number(values[side]) + mark)
        label = f"{name}, accuracy" if group and against[0, 1].get("kind") == "classification" else name
        return [label, *cells]

    config = comparisons["config"]
    notes = [
        f"* the best; = not separable from it: p, corrected (Holm) over tasks and pairs of sides, is {config['level']} "
        "or more. Each two sides have the same resamples.",
        *(f"{name}: over {', '.join(first[key]['tasks'])}." for name, key, _ in averages),
    ]
    if comparisons["not_compared"]:
        notes.append(f"Not compared, as not all have them: {', '.join(comparisons['not_compared'])}.")
    title = f"Spearman x 100 ({config['aggregate']}), or accuracy x 100"
    header = ["task", *(_side(side) for side in comparisons["sides"])]
    return Grid(title, header, [[line(*one) for one in names], [line(*one) for one in averages]], notes)


def _averages(comparison: Result) -> list[tuple[str, dict[str, Any]]]:
    found = [(name, comparison.get(key)) for key, name in _AVERAGES.items()]
    return [(name, row) for name, row in found if row is not None]


def _comparison_row(name: str, row: dict[str, Any], *, seeds: bool) -> list[str]:
    if row["difference"] is None:
        return [name, _number(row["first"]), _number(row["second"]), "", "", "", *["", ""] * seeds, "undefined"]
    better = "first better" if row["difference"] > 0 else "second better"
    return [
        name,
        _number(row["first"]),
        _number(row["second"]),
        f"{row['difference']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}]",
        f"{row['p']:.4f}",
        f"{row['p_holm']:.4f}" if "p_holm" in row else "",
        *(_over_seeds(row["seeds"]) if seeds else []),
        better if row["separable"] else "not separable",
    ]


def _over_seeds(tested: dict[str, Any] | None) -> list[str]:
    return ["" if tested is None or tested.get(key) is None else f"{tested[key]:.4f}" for key in ("p", "p_rank")]


def _comparison_notes(comparison: Result, *, seeds: bool) -> list[str]:
    config, tasks = comparison["config"], comparison["tasks"]
    of_rows = sorted({row["test"] for row in tasks.values() if row.get("kind") == "classification" and row.get("test")})
    notes = [
        f"Interval and p: paired bootstrap over pairs, {config['resamples']} resamples, the same for both sides; "
        "they speak of other pairs. p (Holm) is corrected for the number of tasks; "
        f"separable: p (Holm), or for an average p, below {config['level']}.",
        *([f"p of accuracies: {' or '.join(of_rows)}."] * bool(of_rows)),
        *(f"{name}: over {', '.join(row['tasks'])}." for name, row in _averages(comparison)),
    ]
    if seeds:
        tested = [row["seeds"] for row in tasks.values() if row["seeds"]]
        tests = sorted({one[key] for one in tested for key in ("test", "rank_test") if one.get(key)})
        notes.append(f"p over seeds: {' or '.join(tests)}; they speak of other training runs, and are not corrected.")
    rows = tasks | dict(_averages(comparison))
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


def rich_table(grid: Grid) -> Table:
    """A grid for the screen."""
    table = Table(title=Text(grid.title), caption=Text("\n".join(grid.notes)), caption_justify="left")
    for number, name in enumerate(grid.header):
        table.add_column(Text(name), justify="left" if number == 0 else "right")
    for section in grid.sections:
        for row in section:
            table.add_row(*(Text(cell) for cell in row))  # Text: a bracket in a name or an interval is no markup
        table.add_section()
    return table


def page(title: str, grids: Iterable[Grid], result: Result) -> str:
    """Grids in Markdown, and where their numbers come from."""
    lines = [f"# {title}"]
    for grid in grids:
        lines += ["", f"## {grid.title}", "", *_markdown(grid), *(f"\n{note}" for note in grid.notes)]
    origin = result["provenance"]
    versions = ", ".join(f"{name} {version}" for name, version in origin["versions"].items() if version)
    hardware = ", ".join(str(value) for value in origin["hardware"].values() if value)
    lines += ["", f"`{origin['command']}`, {origin['date']}, commit {origin['commit']}; {versions}; {hardware}."]
    return "\n".join(lines) + "\n"


def _markdown(grid: Grid) -> list[str]:
    rule = ["---", *["---:"] * (len(grid.header) - 1)]
    return [_markdown_row(row) for row in (grid.header, rule, *(row for section in grid.sections for row in section))]


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
