"""Tables of studies: the values of all runs, their means with intervals, the paper's numbers, and paired tests.

A *cell* is one run of the study: a row at one label of each axis (its *coordinates*), with one setting of the
replicates (such as a seed). A *group* holds all replicates of a row at the same coordinates.
"""

from dataclasses import field
from typing import Any, ClassVar, Literal

from nearfar.evaluation.results.models import Projection
from nearfar.evaluation.results.record import OMITTED, Number, Provenance, Record, Result
from nearfar.validation import InvalidValueError


class StudyCell(Record):
    """One finished run."""

    row: str
    """The id of the row."""
    coordinates: dict[str, str] = field(default_factory=dict)
    """Axis -> label."""
    replicate: dict[str, Any] = field(default_factory=dict)
    """Setting -> its value in this replicate; empty for a row without replicates."""
    values: dict[str, float | None]
    """Column -> value; null where it is undefined."""
    validation: float | None = field(default=None, metadata=OMITTED)
    """The score that chooses among replicates, x 100."""
    seconds: float | None = field(default=None, metadata=OMITTED)
    """Time of its last training, or of all its steps if nothing was trained."""
    key: str = ""
    """The key of its last job; cells of a group with the same key are the same run."""
    chosen: bool = True
    """False for a run that is left out of means and tests: it is not among the best by validation that the study keeps,
    or another replicate is the same run."""
    reasons: dict[str, str] = field(default_factory=dict, metadata=OMITTED)
    """Column -> why its value is undefined."""


class MissingCell(Record):
    """A run of the study without a result."""

    row: str
    coordinates: dict[str, str] = field(default_factory=dict)
    replicate: dict[str, Any] = field(default_factory=dict)
    reason: str
    """Why, such as ``not run``."""


class GroupScore(Record):
    """One column of one group: the mean over its runs, beside the paper's number."""

    mean: float | None
    """Null without a finished run, or where the value of a run is undefined."""
    n: int
    """Number of different runs."""
    sd: float | None = field(default=None, metadata=OMITTED)
    """The sample standard deviation (n - 1); null for fewer than two runs."""
    low: float | None = field(default=None, metadata=OMITTED)
    """The 95% interval, from ``low`` to ``high``."""
    high: float | None = field(default=None, metadata=OMITTED)
    interval: str | None = field(default=None, metadata=OMITTED)
    """What the interval is of: ``t over replicates``, or ``bootstrap over pairs`` for a single run."""
    paper: float | None = field(default=None, metadata=OMITTED)
    """The number in the paper."""
    paper_sd: float | None = field(default=None, metadata=OMITTED)
    """The standard deviation in the paper."""
    difference: float | None = field(default=None, metadata=OMITTED)
    """``mean`` minus ``paper``."""
    reason: str | None = field(default=None, metadata=OMITTED)
    """Why the mean is undefined."""


class StudyCurve(Record):
    """A measure over training: means over replicates at the steps that all of them have."""

    steps: list[Number]
    mean: list[float]
    sd: list[float | None] = field(default_factory=list)


class StudyGroup(Record):
    """One line of the table, or one of its cells where an axis gives columns."""

    row: str
    coordinates: dict[str, str] = field(default_factory=dict)
    """Axis -> label; ``average`` is the mean over the labels of an axis."""
    runs: int
    """Number of different finished runs that enter the means."""
    missing: int = 0
    """Number of runs without a result."""
    scores: dict[str, GroupScore]
    """Column -> score."""
    spectrum: list[list[float]] | None = field(default=None, metadata=OMITTED)
    """``[index, singular value divided by the largest]`` at about sixty indices; the mean over replicates."""
    layers: dict[str, list[float | None]] | None = field(default=None, metadata=OMITTED)
    """Pooling -> Spearman x 100 from the embedding layer to the last one; the mean over replicates."""
    projection: Projection | None = field(default=None, metadata=OMITTED)
    """Positions of texts by t-SNE in the first run, where a plot shows them."""
    curves: dict[str, StudyCurve] = field(default_factory=dict, metadata=OMITTED)

    def __post_init__(self) -> None:
        """Points of the spectrum that are not pairs."""
        if any(len(point) != 2 for point in self.spectrum or []):
            raise InvalidValueError("does not hold pairs of index and value", "spectrum")


class StudyTest(Record):
    """The test of one p value, raw and corrected."""

    p: float
    p_holm: float
    """``p`` after Holm's correction over all tests of this sort in the table."""
    test: str
    """The name of the test."""
    low: float | None = field(default=None, metadata=OMITTED)
    """The 95% interval of the difference, from ``low`` to ``high``."""
    high: float | None = field(default=None, metadata=OMITTED)


class StudyComparison(Record):
    """One column of two groups: first minus second."""

    first: str
    """The id of the row."""
    second: str
    first_coordinates: dict[str, str] = field(default_factory=dict)
    second_coordinates: dict[str, str] = field(default_factory=dict)
    column: str
    difference: float | None
    """Mean of the first group minus mean of the second."""
    paper: float | None = field(default=None, metadata=OMITTED)
    """The same difference in the paper."""
    pairs: StudyTest | None = field(default=None, metadata=OMITTED)
    """The test over pairs, rows or queries of the test set: generalises to other test data."""
    seeds: StudyTest | None = field(default=None, metadata=OMITTED)
    """The test over replicates: generalises to other training runs."""
    reason: str | None = field(default=None, metadata=OMITTED)
    """Why there is no difference, or no test over pairs."""


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
    title: str
    source: str | None = None
    """The paper and its table."""
    notes: str = ""
    """Markdown."""
    caption: str = ""
    """Text of the LaTeX table."""
    columns: list[str]
    study: dict[str, Any]
    """The study file, after the overlay of the scale."""
    scale: str | None = None
    changes: list[str] = field(default_factory=list)
    """Settings of the scale that differ from the study file itself, in words."""
    command: str | None = None
    """The command that runs the study again."""
    resamples: int
    """Bootstrap resamples of the intervals and tests."""
    seed: int = 0
    level: float = 0.05
    """The significance level."""
    provenance: Provenance = field(default_factory=Provenance)
    """Of the table."""
    runs: StudyProvenance = field(default_factory=StudyProvenance)
    """Of the results in the table."""
    unseen_pairs: dict[str, list[int]] = field(default_factory=dict, metadata=OMITTED)
    """Task -> number of pairs that no run has seen, and of all pairs, where a column is over unseen pairs."""
    groups: list[StudyGroup]
    comparisons: list[StudyComparison] = field(default_factory=list)
    missing: list[MissingCell] = field(default_factory=list)
    cells: list[StudyCell]

    def __post_init__(self) -> None:
        """A row that the study does not have, or a group without one of the columns."""
        rows = self.study.get("rows")
        if not isinstance(rows, list) or not all(isinstance(row, dict) and "id" in row for row in rows):
            raise InvalidValueError("is not a list of rows with ids", "study", "rows")
        known = {row["id"] for row in rows}
        used = [one.row for part in (self.groups, self.missing, self.cells) for one in part]
        used += [name for row in self.comparisons for name in (row.first, row.second)]
        for row in used:
            if row not in known:
                raise InvalidValueError(f"lacks the row {row!r}", "study", "rows")
        for number, group in enumerate(self.groups):
            for column in self.columns:
                if column not in group.scores:
                    raise InvalidValueError(f"lacks {column!r}", "groups", number, "scores")
