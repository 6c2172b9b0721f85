"""Paired tests between groups of runs, over test data and over replicates, with Holm's correction over the table.

Over test data (*pairs*): correlations, F1, Matthews correlation and averages by the paired bootstrap with the same
resamples for all runs; accuracies by McNemar's exact test, or a permutation test where a side has several runs; means
over queries by a randomization test. Over replicates (*seeds*): a t-test, paired where both sides have the same
replicates, else Welch's; against a side that is one fixed run, such as a baseline without training, a one-sample
t-test. The tests are those of :func:`nearfar.evaluation.comparison.compare_runs`. p is corrected over all tests of the
table (Holm), separately for the two sorts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from nearfar.evaluation.paired import RunScores, paired_test
from nearfar.evaluation.results import StudyComparison, StudyTest
from nearfar.evaluation.statistics import Difference, bootstrap_test, holm, t_test_over_seeds
from nearfar.studies.columns import NOT_MEASURED, OF_RUNS, ColumnValue, Group
from nearfar.studies.resampling import Resampler, TestData
from nearfar.studies.spec import AVERAGE, Study, agree


class GroupPair(NamedTuple):
    """Two groups to compare."""

    first: Group
    second: Group


def pairs_of_groups(study: Study, groups: Sequence[Group]) -> list[GroupPair]:
    """The groups that the study compares.

    Two rows are compared wherever their coordinates agree on the axes that both have. An axis with ``compare_with``
    compares the groups of each row at its other labels with the group at that label.
    """
    found = [
        GroupPair(first, second)
        for one, other in study.compare
        for first, second in product(_of_row(groups, one), _of_row(groups, other))
        if agree(first.coordinates, second.coordinates)
    ]
    for axis in study.axes:
        for first in groups if axis.baseline is not None else ():
            label = first.coordinates.get(axis.name)
            if label is None or label in (axis.baseline, AVERAGE):
                continue
            wanted = {**first.coordinates, axis.name: axis.baseline}
            found += [GroupPair(first, one) for one in _of_row(groups, first.row) if one.coordinates == wanted]
    return found


def _of_row(groups: Sequence[Group], row: str) -> list[Group]:
    return [group for group in groups if group.row == row]


def _compared(study: Study, pairs: Sequence[GroupPair]) -> Iterator[tuple[GroupPair, str]]:
    runs = [run for pair in pairs for group in pair for run in group.runs]
    numbers = {
        column
        for column in study.columns
        if column in OF_RUNS or (runs and all(run.columns[column].kind == "number" for run in runs))
    }
    columns = study.compare_columns or [column for column in study.columns if column not in numbers]
    for pair in pairs:
        both = [run for group in pair for run in group.runs]
        for column in columns:
            if not both or any(run.columns[column].reason != NOT_MEASURED for run in both):
                yield pair, column


def data_of_comparisons(study: Study, pairs: Sequence[GroupPair]) -> list[TestData]:
    """The data that the tests draw resamples of."""
    found: list[TestData] = []
    for pair, column in _compared(study, pairs):
        if _why_not_paired(pair, column) is None:
            for run in (*pair.first.kept, *pair.second.kept):
                found += run.columns[column].data or ()
    return found


def compare_groups(study: Study, pairs: Sequence[GroupPair], resampler: Resampler) -> list[StudyComparison]:
    """All comparisons of the table; both sorts of p are corrected over all of them (Holm)."""
    found = [_compare(study, pair, column, resampler) for pair, column in _compared(study, pairs)]
    for sort in ("pairs", "seeds"):
        tested = [row for row in found if getattr(row, sort) is not None]
        corrected = iter(holm([getattr(row, sort).p for row in tested]))
        found = [
            replace(row, **{sort: replace(test, p_holm=round(next(corrected), 6))})
            if (test := getattr(row, sort)) is not None
            else row
            for row in found
        ]
    return found


def _compare(study: Study, pair: GroupPair, column: str, resampler: Resampler) -> StudyComparison:
    first, second = pair
    values = [[run.columns[column].value for run in side.kept] for side in pair]
    papers = [study.row(side.row).paper_number(side.coordinates, column) for side in pair]
    row = StudyComparison(
        first=first.row,
        second=second.row,
        first_coordinates=first.coordinates,
        second_coordinates=second.coordinates,
        column=column,
        difference=None,
        paper=None if papers[0] is None or papers[1] is None else round(papers[0].value - papers[1].value, 4),
    )
    known = [np.array([value for value in side if value is not None]) for side in values]
    for side, group, scores in zip(values, pair, known, strict=True):
        if not side:
            return replace(row, reason=f"{group.row}: no finished run")
        if len(scores) < len(side):
            why = next((reason for run in group.kept if (reason := run.columns[column].reason)), "undefined")
            return replace(row, reason=f"{group.row}: {why}")
    difference = float(known[0].mean() - known[1].mean())
    not_paired = _why_not_paired(pair, column)
    return replace(
        row,
        difference=round(difference, 4),
        pairs=None if not_paired else _over_pairs(pair, column, difference, resampler),
        seeds=_over_seeds(pair, column),
        reason=not_paired,
    )


def _why_not_paired(pair: GroupPair, column: str) -> str | None:
    """Why there is no test over the test data, or None where there is one."""
    runs = [*pair.first.kept, *pair.second.kept]
    data = [run.columns[column].data for run in runs]
    if not pair.first.kept or not pair.second.kept or not all(data):
        return "no test over pairs: the scores of single pairs are not stored"
    shapes = {frozenset(part.group for part in parts or ()) for parts in data}
    return None if len(shapes) == 1 else "no test over pairs: the runs were tested on different data"


def _over_pairs(pair: GroupPair, column: str, difference: float, resampler: Resampler) -> StudyTest | None:
    sides = [[run.columns[column] for run in side.kept] for side in pair]
    draws = [np.mean([resampler.of(value.data or ()) for value in side], axis=0) for side in sides]
    tested = bootstrap_test(difference / 100, draws[0] - draws[1])
    if tested is None:
        return None
    by_rows = _by_rows(sides[0], sides[1], resampler)
    p, name = by_rows or (tested.p, tested.test)
    return _study_test(tested._replace(p=p, test=name), 100)


def _by_rows(
    first: Sequence[ColumnValue], second: Sequence[ColumnValue], resampler: Resampler
) -> tuple[float, str] | None:
    """The test of accuracies or of means over queries on a single task; None for other columns."""
    values = [*first, *second]
    parts = [value.data[0] for value in values if value.data and len(value.data) == 1]
    if len(parts) < len(values) or parts[0].statistic not in ("accuracy", "mean"):
        return None
    predicted = np.array([part.predicted for part in parts], dtype=np.float64)
    scored = RunScores(np.zeros(len(parts)), np.zeros((len(parts), 0)), (None,) * len(parts))
    if parts[0].statistic == "accuracy":
        scored = scored._replace(correct=predicted == np.array(parts[0].gold, dtype=np.float64))
    else:
        scored = scored._replace(per_query=predicted)
    seeds = [resampler.seed, *parts[0].task.encode()]
    return paired_test(scored, len(first), resamples=resampler.resamples, seed=seeds)


def _over_seeds(pair: GroupPair, column: str) -> StudyTest | None:
    first, second = ({_named(run.replicate): run.columns[column].value for run in side.kept} for side in pair)
    a, b = ([value for value in side.values() if value is not None] for side in (first, second))
    paired = first.keys() == second.keys()
    if pair.first.fixed != pair.second.fixed and min(len(a), len(b)) == 1:
        a, b = (side * max(len(a), len(b)) if len(side) == 1 else side for side in (a, b))
        tested = t_test_over_seeds(a, b, paired=True)
        return tested and _study_test(tested._replace(test="one-sample t-test over seeds"), 1)
    if paired:
        b = [value for name in first if (value := second[name]) is not None]
    tested = t_test_over_seeds(a, b, paired=paired) if min(len(a), len(b)) > 1 else None
    return tested and _study_test(tested, 1)


def _named(replicate: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(value)) for name, value in replicate.items()))


def _study_test(tested: Difference, scale: float) -> StudyTest:
    return StudyTest(
        p=round(tested.p, 6),
        p_holm=round(tested.p, 6),
        test=tested.test,
        low=round(scale * tested.low, 4),
        high=round(scale * tested.high, 4),
    )
