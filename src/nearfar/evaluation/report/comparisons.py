"""Comparisons in a report: differences with their intervals, p, its correction over tests, and tests over seeds."""

from collections.abc import Sequence
from dataclasses import replace

from nearfar.evaluation.comparison import AVERAGES
from nearfar.evaluation.report.blocks import DASH, Block, Details, Paragraph, Section, Table
from nearfar.evaluation.report.inputs import EvaluatedModel
from nearfar.evaluation.report.significance import AnyComparison
from nearfar.evaluation.results import AverageTest, ComparisonResult, PairwiseResult
from nearfar.evaluation.tables.comparison import comparison_grid, pairwise_grid, verdict
from nearfar.evaluation.tables.grid import Grid, format_score

_HEADER = ["first against second", "first", "second", "first - second", "95% interval", "p", "p (Holm)", "p over seeds"]


def comparisons(
    sides: Sequence[EvaluatedModel], computed: AnyComparison | None, from_files: Sequence[tuple[str, AnyComparison]]
) -> list[Block]:
    """The comparison of the ``sides`` that was computed for this page, and those read from files."""
    blocks: list[Block] = []
    if computed is not None:
        title = f"Computed for this page: {computed.config.resamples:,} resamples, seed {computed.config.seed}"
        blocks.append(Section(title, _blocks(renamed(computed, sides))))
    return blocks + [Section(f"From {source}", _blocks(comparison)) for source, comparison in from_files]


def renamed(comparison: AnyComparison, sides: Sequence[EvaluatedModel]) -> AnyComparison:
    """A comparison of these sides, under the names that they have on this page."""
    named = [replace(old, name=side.name) for old, side in zip(comparison.sides, sides, strict=True)]
    if isinstance(comparison, ComparisonResult):
        return replace(comparison, first=named[0], second=named[1])
    return replace(comparison, sides=named)


def _blocks(comparison: AnyComparison) -> list[Block]:
    if isinstance(comparison, ComparisonResult):
        return [_table(comparison_grid(comparison)), *_resamples_warning(comparison)]
    tables = []
    for tests in comparison.comparisons:
        pair = comparison.between(tests)
        tables.append(Details(f"{pair.first.name} against {pair.second.name}", [_table(comparison_grid(pair))]))
    return [_table(pairwise_grid(comparison)), *_resamples_warning(comparison), *_averages(comparison), *tables]


def _resamples_warning(comparison: AnyComparison) -> list[Block]:
    """A warning where even the smallest possible p of a bootstrap is not significant after the correction."""
    config = comparison.config
    tested = sum(row.p is not None for tests in comparison.comparisons for row in tests.tasks.values())
    floor = 2 / (1 + config.resamples)
    if tested * floor < config.level:
        return []
    return [
        Paragraph(
            f"With {config.resamples:,} resamples no bootstrap p is below {floor:.2g}; corrected over {tested} tests "
            f"it is {config.level} or more. With more --resamples more differences may be significant."
        )
    ]


def _averages(comparison: PairwiseResult) -> list[Block]:
    """One table per average, a row for each pair of sides."""
    names = [side.name for side in comparison.sides]
    tables: list[Block] = []
    titles = {key: f"the average of {kind} tasks" for key, kind in AVERAGES.items()}
    titles |= {name: f"the average of {name}" for name in comparison.comparisons[0].named_averages}
    for key, title in titles.items():
        found = [
            (tests.pair, average) for tests in comparison.comparisons if (average := tests.average(key)) is not None
        ]
        rows = [[f"{names[first]} against {names[second]}", *_cells(average)] for (first, second), average in found]
        if rows:
            reasons = dict.fromkeys(average.reason for _, average in found if average.reason is not None)
            notes = [f"Undefined: {reason}." for reason in reasons]
            tables.append(Table(f"Each pair, on {title}", [*_HEADER, "verdict"], rows, notes))
    return tables


def _cells(row: AverageTest) -> list[str]:
    scores = [format_score(row.first), format_score(row.second)]
    if row.difference is None:
        return [*scores, *[DASH] * 5, verdict(row)]
    over_seeds = row.seeds.p if row.seeds else None
    return [
        *scores,
        f"{row.difference:+.2f}",
        f"[{row.low:+.2f}, {row.high:+.2f}]",
        f"{row.p:.4f}",
        DASH if row.p_holm is None else f"{row.p_holm:.4f}",
        DASH if over_seeds is None else f"{over_seeds:.4f}",
        verdict(row),
    ]


def _table(grid: Grid) -> Table:
    return Table(grid.title, grid.header, grid.rows, grid.notes)
