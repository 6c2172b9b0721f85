"""Comparisons in a report: differences with their intervals, p, its correction over tests, and tests over seeds."""

from collections.abc import Sequence
from typing import Any

from nearfar.evaluation.comparison import AVERAGES
from nearfar.evaluation.report.blocks import DASH, Block, Details, Paragraph, Section, Table
from nearfar.evaluation.report.inputs import EvaluatedModel
from nearfar.evaluation.report.significance import sides_of, tests_of
from nearfar.evaluation.results import Result
from nearfar.evaluation.tables import Grid, comparison_grid, comparisons_grid

_HEADER = ["first against second", "first", "second", "first - second", "95% interval", "p", "p (Holm)", "p over seeds"]


def comparisons(
    sides: Sequence[EvaluatedModel], computed: Result | None, from_files: Sequence[tuple[str, Result]]
) -> list[Block]:
    """The comparison that was computed of the ``sides``, and those that were given with their files."""
    blocks: list[Block] = []
    if computed is not None:
        config = computed["config"]
        title = f"Computed for this page: {config['resamples']:,} resamples, seed {config['seed']}"
        blocks.append(Section(title, _blocks(renamed(computed, sides))))
    return blocks + [Section(f"From {source}", _blocks(comparison)) for source, comparison in from_files]


def renamed(comparison: Result, sides: Sequence[EvaluatedModel]) -> Result:
    """A comparison of these sides, under the names that they have here."""
    named = [{**old, "name": side.name} for old, side in zip(sides_of(comparison), sides, strict=True)]
    if comparison["kind"] == "comparison":
        return {**comparison, "first": named[0], "second": named[1]}
    return {**comparison, "sides": named}


def _blocks(comparison: Result) -> list[Block]:
    sides = sides_of(comparison)
    if comparison["kind"] == "comparison":
        return [_table(comparison_grid(comparison)), *_resamples_warning(comparison)]
    tables = []
    for i, j, tests in tests_of(comparison):
        two = {**comparison, **tests, "first": sides[i], "second": sides[j], "not_compared": []}
        tables.append(Details(f"{sides[i]['name']} against {sides[j]['name']}", [_table(comparison_grid(two))]))
    return [_table(comparisons_grid(comparison)), *_resamples_warning(comparison), *_averages(comparison), *tables]


def _resamples_warning(comparison: Result) -> list[Block]:
    """Says so where the correction takes the smallest p that resampling can give to the level or above it."""
    config = comparison["config"]
    rows = [row for _, _, tests in tests_of(comparison) for row in tests["tasks"].values()]
    tested = sum(row["p"] is not None for row in rows)
    floor = 2 / (1 + config["resamples"])
    if tested * floor < config["level"]:
        return []
    return [
        Paragraph(
            f"With {config['resamples']:,} resamples no p of a bootstrap is below {floor:.2g}, which the correction "
            f"over {tested} tests takes to {config['level']} or more. More --resamples may tell more sides apart."
        )
    ]


def _averages(comparison: Result) -> list[Block]:
    """Each two sides in one table, for each average."""
    names = [side["name"] for side in sides_of(comparison)]
    tables: list[Block] = []
    for key, kind in AVERAGES.items():
        rows = [
            [f"{names[i]} against {names[j]}", *_cells(tests[key])]
            for i, j, tests in tests_of(comparison)
            if tests.get(key) is not None
        ]
        if rows:
            found = (tests.get(key) for _, _, tests in tests_of(comparison))
            reasons = dict.fromkeys(row["reason"] for row in found if row is not None and "reason" in row)
            notes = [f"Undefined: {reason}." for reason in reasons]
            tables.append(Table(f"Each two, on the average of {kind} tasks", [*_HEADER, "verdict"], rows, notes))
    return tables


def _cells(row: dict[str, Any]) -> list[str]:
    scores = ["undefined" if row[side] is None else f"{row[side]:.2f}" for side in ("first", "second")]
    if row["difference"] is None:
        return [*scores, *[DASH] * 5, "undefined"]
    over_seeds = (row["seeds"] or {}).get("p")
    better = "first better" if row["difference"] > 0 else "second better"
    return [
        *scores,
        f"{row['difference']:+.2f}",
        f"[{row['low']:+.2f}, {row['high']:+.2f}]",
        f"{row['p']:.4f}",
        f"{row['p_holm']:.4f}" if "p_holm" in row else DASH,
        DASH if over_seeds is None else f"{over_seeds:.4f}",
        better if row["separable"] else "not separable",
    ]


def _table(grid: Grid) -> Table:
    return Table(grid.title, grid.header, [row for section in grid.sections for row in section], grid.notes)
