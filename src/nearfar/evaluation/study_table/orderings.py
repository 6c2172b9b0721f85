"""Which of the paper's orderings are seen: the signs of differences between rows, in the paper and here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias

from nearfar.evaluation.results import StudyComparison, StudyGroup, StudyTable
from nearfar.evaluation.study_table.layout import (
    Layout,
    heading,
    lay_out,
    number,
    pair_name,
    paper_number,
    significant,
)
from nearfar.evaluation.study_table.plan import AVERAGE, Axis
from nearfar.evaluation.study_table.text import escape, p_value

Verdict: TypeAlias = Literal["same sign, significant", "same sign, not significant", "opposite sign", "no difference"]
VERDICTS: tuple[Verdict, ...] = (
    "same sign, significant",
    "same sign, not significant",
    "opposite sign",
    "no difference",
)


@dataclass(frozen=True)
class Ordering:
    """One difference that the paper has too."""

    comparison: StudyComparison
    verdict: Verdict
    text: str
    """In words, with the numbers."""


def orderings(table: StudyTable) -> list[Ordering]:
    """For each compared pair with numbers in the paper, whether the difference here has the same sign.

    Pairs that are equal in the paper, or have no result here, are left out. Significant means p < 0.05 after Holm's
    correction, on the test data and over runs, where there are both tests.
    """
    layout = lay_out(table)
    found = []
    for row in table.comparisons:
        if row.paper is None or row.difference is None or round(row.paper, 6) == 0:
            continue
        sure = significant(row, table.level)
        found.append(Ordering(row, _verdict(row.paper * row.difference, sure=sure), _words(layout, row, sure=sure)))
    return found


def _verdict(product: float, *, sure: bool) -> Verdict:
    if product == 0:
        return "no difference"
    if product < 0:
        return "opposite sign"
    return "same sign, significant" if sure else "same sign, not significant"


def _words(layout: Layout, row: StudyComparison, *, sure: bool) -> str:
    assert row.difference is not None
    assert row.paper is not None
    paper = ("+" if row.paper > 0 else "") + paper_number(row.paper, row.column)
    here = number(row.difference, row.column, sign=True)
    ps = [
        f"p = {p_value(test.p_holm)} {of}"
        for test, of in ((row.pairs, "on test data"), (row.seeds, "over runs"))
        if test
    ]
    verdict = f"{'' if sure else 'not '}significant: {', '.join(ps)}" if ps else "not tested"
    return (
        f"{pair_name(layout, row)}, {heading(layout.plan, row.column)}: {paper} in the paper, {here} here ({verdict})"
    )


def agreement(table: StudyTable, column: str) -> tuple[int, int]:
    """How many pairs of groups have the paper's order, and how many have different numbers in the paper.

    Groups that are tested on different tasks, and averages over an axis beside its labels, are not paired.
    """
    axes = lay_out(table).plan.axes.values()
    known = [
        (_tested_on(group, axes), score.paper, score.mean)
        for group in table.groups
        if (score := group.scores[column]).paper is not None and score.mean is not None
    ]
    differences = [
        ((one[1] or 0.0) - (other[1] or 0.0), (one[2] or 0.0) - (other[2] or 0.0))
        for one, other in combinations(known, 2)
        if one[0] == other[0]
    ]
    tested = [(paper, here) for paper, here in differences if round(paper, 6) != 0]
    return sum(paper * here > 0 for paper, here in tested), len(tested)


def _tested_on(group: StudyGroup, axes: Iterable[Axis]) -> list[str | None]:
    """The labels of the axes that say what is tested, and which axes are averaged over."""
    labels = [(axis, group.coordinates.get(axis.name)) for axis in axes]
    return [label if axis.other_test or label == AVERAGE else None for axis, label in labels]


def orderings_markdown(table: StudyTable, *, level: int = 2) -> list[str]:
    """The section about orderings; empty where the paper has no numbers to compare with."""
    found = orderings(table)
    ranked = [(column, *agreement(table, column)) for column in table.columns]
    ranked = [one for one in ranked if one[2] > 0]
    if not found and not ranked:
        return []
    lines = [f"{'#' * level} Orderings of the paper", ""]
    if found:
        lines += [
            f"Of {len(found)} compared differences that the paper has too: {_counts(found)}. Significant: p < "
            f"{table.level:g} after Holm's correction, on the test data and over runs, where there are both tests.",
            "",
        ]
    for verdict in VERDICTS:
        listed = [one for one in found if one.verdict == verdict]
        if listed:
            lines += [f"{verdict[0].upper()}{verdict[1:]}:", "", *(f"- {escape(one.text)}" for one in listed), ""]
    if ranked:
        layout = lay_out(table)
        words = [f"{escape(heading(layout.plan, column))} {same} of {of}" for column, same, of in ranked]
        lines += [f"Pairs of lines in the paper's order, tested or not: {', '.join(words)}.", ""]
    return lines


def _counts(found: Sequence[Ordering]) -> str:
    counts = [(sum(one.verdict == verdict for one in found), verdict) for verdict in VERDICTS]
    return "; ".join(f"{count} {verdict}" for count, verdict in counts if count or verdict != "no difference")
