"""Tables of studies: the values of all runs, the intervals of their means, and the compared differences.

A *cell* is one run of the study: a row at one label of each axis (its *coordinates*), with one setting of the
replicates (such as a seed). A *group* holds all replicates of a row at the same coordinates. Each number is stored
once: means and standard deviations are those of the values of the cells, and the paper's numbers are in the study
(:meth:`nearfar.studies.page.Layout.frame` has them all).
"""

from dataclasses import field
from typing import Any, ClassVar, Literal

from nearfar.evaluation.results.models import Projection
from nearfar.evaluation.results.record import OMITTED, Number, Provenance, Record, Result, TestedDifference
from nearfar.validation import InvalidValueError


class StudyCell(Record):
    """One run."""

    row: str
    """The id of the row."""
    coordinates: dict[str, str] = field(default_factory=dict, metadata=OMITTED)
    """Axis -> label."""
    replicate: dict[str, Any] = field(default_factory=dict, metadata=OMITTED)
    """Setting -> its value in this replicate; empty for a row without replicates."""
    key: str = ""
    """The key of its last job; cells of a group with the same key are the same run, which counts once."""
    values: dict[str, float | None] = field(default_factory=dict, metadata=OMITTED)
    """Column -> value, null where it is undefined; also ``validation``, the score that chooses among replicates (x
    100), and ``seconds``, the time of its last training, or of all its steps if nothing was trained."""
    reasons: dict[str, str] = field(default_factory=dict, metadata=OMITTED)
    """Column -> why its value is undefined."""
    missing: str | None = field(default=None, metadata=OMITTED)
    """Why there is no result, such as ``not run``; null for a finished run."""


class StudyCurve(Record):
    """A measure over training: means over replicates at the steps that all of them have."""

    steps: list[Number]
    mean: list[float]
    sd: list[float | None] = field(default_factory=list)


class StudyGroup(Record):
    """What is known of the finished runs of a group together."""

    row: str
    coordinates: dict[str, str] = field(default_factory=dict, metadata=OMITTED)
    """Axis -> label; ``average`` is the mean over the labels of an axis."""
    intervals: dict[str, list[float]] = field(default_factory=dict, metadata=OMITTED)
    """Column -> the 95% interval of its mean, ``[low, high]``."""
    spectrum: list[list[float]] | None = field(default=None, metadata=OMITTED)
    """``[index, singular value divided by the largest]`` at about sixty indices; the mean over replicates."""
    layers: dict[str, list[float | None]] | None = field(default=None, metadata=OMITTED)
    """Pooling -> Spearman x 100 from the embedding layer to the last one; the mean over replicates."""
    projection: Projection | None = field(default=None, metadata=OMITTED)
    """Positions of texts by t-SNE in the first run, where a plot shows them."""
    curves: dict[str, StudyCurve] = field(default_factory=dict, metadata=OMITTED)

    def __post_init__(self) -> None:
        """Points of the spectrum, or intervals, that are not pairs."""
        if any(len(point) != 2 for point in self.spectrum or []):
            raise InvalidValueError("does not hold pairs of index and value", "spectrum")
        if any(len(ends) != 2 for ends in self.intervals.values()):
            raise InvalidValueError("does not hold pairs of low and high", "intervals")


class StudyComparison(TestedDifference):
    """One column of two groups: first minus second, with one interval over test units and training runs.

    ``p_holm`` is over all comparisons of the table, or of the columns that are its claims, and null for the others.
    ``verdict`` is null for these and for a column whose numbers are no scores, such as time, and ``units`` where the
    interval is over runs alone, which ``reason`` then explains.
    """

    first: str
    """The id of the row."""
    second: str
    first_coordinates: dict[str, str] = field(default_factory=dict, metadata=OMITTED)
    second_coordinates: dict[str, str] = field(default_factory=dict, metadata=OMITTED)
    column: str

    def __post_init__(self) -> None:
        """Nothing: a difference of two single runs, whose units are not known, has no interval."""


class StudyProvenance(Record):
    """Where the runs of a study come from: all distinct values, and the number of results that have each."""

    first_date: str | None = None
    last_date: str | None = None
    commits: dict[str, int] = field(default_factory=dict)
    versions: dict[str, dict[str, int]] = field(default_factory=dict)
    """Package -> version -> number of results."""
    hardware: list[dict[str, Any]] = field(default_factory=list)
    """Distinct machines, as in the provenance of a result; ``results`` is the number of results."""


class StudyTable(Result):
    """What ``nearfar study`` writes as study.json."""

    WHAT: ClassVar[str] = "a table of nearfar study"

    kind: Literal["study-table"] = "study-table"
    study: dict[str, Any]
    """The study file, after the overlay of the scale."""
    columns: list[str]
    """The columns of the study, without those on unseen pairs where no pair was seen."""
    scale: str | None = None
    changes: list[str] = field(default_factory=list)
    """Settings of the scale that differ from the study file itself, in words."""
    command: str | None = None
    """The command that runs the study again."""
    resamples: int
    """Bootstrap resamples of the intervals."""
    seed: int = 0
    intervals_from: str | None = field(default=None, metadata=OMITTED)
    """What the intervals were put together from, where the scores of single units were not kept."""
    provenance: Provenance = field(default_factory=Provenance)
    """Of the table."""
    runs: StudyProvenance = field(default_factory=StudyProvenance)
    """Of the results in the table."""
    unseen_pairs: dict[str, list[int]] = field(default_factory=dict, metadata=OMITTED)
    """Task -> number of pairs that no run has seen, and of all pairs, where a column is over unseen pairs."""
    groups: list[StudyGroup]
    comparisons: list[StudyComparison] = field(default_factory=list)
    cells: list[StudyCell]

    @property
    def title(self) -> str:
        """The title of the study."""
        return str(self.study["title"])

    @property
    def missing(self) -> list[StudyCell]:
        """The runs without a result."""
        return [cell for cell in self.cells if cell.missing is not None]

    def __post_init__(self) -> None:
        """A study without title, a row that the study does not have, or a cell without one of the columns."""
        if not isinstance(self.study.get("title"), str):
            raise InvalidValueError("is not a text", "study", "title")
        rows = self.study.get("rows")
        if not isinstance(rows, list) or not all(isinstance(row, dict) and "id" in row for row in rows):
            raise InvalidValueError("is not a list of rows with ids", "study", "rows")
        used = [one.row for part in (self.groups, self.cells) for one in part]
        used += [name for row in self.comparisons for name in (row.first, row.second)]
        if unknown := set(used) - {row["id"] for row in rows}:
            raise InvalidValueError(f"lacks the row {min(unknown)!r}", "study", "rows")
        for number, cell in enumerate(self.cells):
            for column in self.columns if cell.missing is None else ():
                if column not in cell.values:
                    raise InvalidValueError(f"lacks {column!r}", "cells", number, "values")
