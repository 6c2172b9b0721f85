"""Paired tests between the sides of a comparison, two or more.

Scores are Spearman x 100, for classification tasks accuracy x 100, for retrieval tasks a mean over queries x 100.
Differences are first minus second. Where a score is undefined, the difference and everything derived from it are null,
and ``reason`` says why.
"""

from dataclasses import field, fields
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from nearfar.evaluation.results.evaluation import SeenShares
from nearfar.evaluation.results.record import OMITTED, Estimate, Provenance, Record, Result, TestedDifference
from nearfar.validation import InvalidValueError

_AVERAGES = ("overall", "overall_transfer", "overall_retrieval")


class RankedScore(Estimate, kw_only=False):
    """The score x 100 of a system, its interval over units and training runs, and the ranks that it may have."""

    best_rank: int | None = field(default=None, metadata=OMITTED)
    """1 + the number of systems that are better."""
    worst_rank: int | None = field(default=None, metadata=OMITTED)
    """The number of systems that are not worse, with itself."""


class ComparedSide(Record):
    """One side of a comparison: a model, one method trained with several seeds, or a system that any tool scored."""

    name: str
    models: list[str]
    """One per run."""
    sources: list[str] = field(default_factory=list)
    """The file or model of each run."""
    training_seeds: list[int | None] = field(default_factory=list)
    seen: dict[str, SeenShares] | None = field(default=None, metadata=OMITTED)
    """What the side has seen of each compared task in training, for several runs the mean; tasks where it is known."""
    folds: int | None = field(default=None, metadata=OMITTED)
    """Where each row was tested by one of several models, trained without its fold: the number of folds."""
    overall_rank: RankedScore | None = field(default=None, metadata=OMITTED)
    """Of a system in a table of scores or a run file: its mean over several tasks."""
    ranks: dict[str, RankedScore] | None = field(default=None, metadata=OMITTED)
    """The same on each task."""
    counts: dict[str, int] | None = field(default=None, metadata=OMITTED)
    """What is worth knowing of the queries of a run file, in words -> their number."""


class PairedTest(TestedDifference):
    """The test of a difference between two scores."""

    SCORES: ClassVar[tuple[str, ...]] = ("first", "second")

    first: float | None
    second: float | None


class TaskTest(PairedTest):
    """The test on one task."""

    kind: Literal["similarity", "relatedness", "classification", "retrieval", "scores"] = "similarity"
    """``scores``: of a table by any tool."""
    pairs: int | None = field(default=None, metadata=OMITTED)
    """Number of pairs, of tested rows, of queries, or of other units."""
    measure: str | None = field(default=None, metadata=OMITTED)
    """The measure of a retrieval task, such as ``ndcg@10``; ``score x 100`` or ``score`` of a table by any tool."""

    @property
    def metric(self) -> str:
        """The name of the score that is tested."""
        return self.measure or ("accuracy" if self.kind == "classification" else "spearman")


class AverageTest(PairedTest):
    """The test on the average over tasks of one kind."""

    tasks: list[str]
    """The tasks that are averaged."""


class ShownHit(Record):
    """A text that was found for a query."""

    text: str
    score: float
    """Its cosine with the query."""
    right: bool
    """Whether it is relevant to the query."""


class ShownHits(Record):
    """The best hits of a query by one of the sides."""

    rank: int | None
    """The rank of the first right hit; null where none of ``searched`` hits is right."""
    searched: int
    hits: list[ShownHit]


class QueryExample(Record):
    """A query with its hits by both sides."""

    change: float
    """Of 1 / rank of its first right hit, from the second side to the first."""
    query: str
    right: list[str]
    """The relevant texts."""
    first: ShownHits
    second: ShownHits


class QueryChanges(Record):
    """How the first side ranks the right hits of queries, compared with the second, and some of the queries."""

    higher: int
    """Number of queries whose first right hit ranks higher than by the second side."""
    lower: int
    same: int
    examples: list[QueryExample]


class ComparisonSettings(Record):
    """How sides were compared."""

    metric: str = "spearman"
    aggregate: str
    """How a task with subsets becomes one number: ``all``, ``mean`` or ``wmean``."""
    measure: str | None = field(default=None, metadata=OMITTED)
    """The measure of all retrieval tasks; where it is null, each has its main measure."""
    resamples: Annotated[int, Meta(ge=0)]
    seed: int = 0
    level: float
    """The significance level."""
    margin: Annotated[float, Meta(ge=0)]
    """The largest difference, in points, that counts as level."""


class _Tests(Record):
    tasks: dict[str, TaskTest]
    overall: AverageTest | None
    """The average over similarity tasks."""
    overall_transfer: AverageTest | None = None
    """The average over classification tasks."""
    overall_retrieval: AverageTest | None = field(default=None, metadata=OMITTED)
    """The average over retrieval tasks."""
    named_averages: dict[str, AverageTest] = field(default_factory=dict, metadata=OMITTED)
    """Averages that papers report, by name, other than those over all tasks of a kind."""

    def tests(self) -> dict[str, Any]:
        """The fields that hold the tests."""
        return {one.name: getattr(self, one.name) for one in fields(_Tests)}

    @property
    def averages(self) -> dict[str, AverageTest]:
        """All averages that there are: ``overall``, ``overall_transfer``, ``overall_retrieval`` and those by name."""
        every = {name: getattr(self, name) for name in _AVERAGES} | self.named_averages
        return {name: average for name, average in every.items() if average is not None}


class PairTests(_Tests):
    """All tests between two of several sides."""

    pair: list[int]
    """The positions of the two sides in ``sides``."""


class ComparisonResult(_Tests, Result):
    """What ``nearfar compare FIRST SECOND`` writes."""

    WHAT: ClassVar[str] = "a result file of nearfar compare"
    """What the file is, in error messages."""

    kind: Literal["comparison"] = "comparison"
    """The kind of the file."""
    first: ComparedSide
    """The first side; differences are first minus second."""
    second: ComparedSide
    """The second side."""
    config: ComparisonSettings
    """How the sides were compared."""
    provenance: Provenance = field(default_factory=Provenance)
    """Date, command, commit, package versions and hardware."""
    not_compared: list[str]
    """Tasks that not all runs have."""
    queries: QueryChanges | None = field(default=None, metadata=OMITTED)
    """With ``--examples``, and after training: which held-out queries the first side ranks better or worse, and some
    of them."""

    __repr__ = Result.__repr__  # before that of _Tests

    @property
    def sides(self) -> list[ComparedSide]:
        """Both sides."""
        return [self.first, self.second]

    @property
    def comparisons(self) -> list[PairTests]:
        """The tests of the one pair of sides."""
        return [PairTests(pair=[0, 1], **self.tests())]


class PairwiseResult(Result):
    """What ``nearfar compare`` writes for three sides or more, and for scores of any tool: the tests of each pair.

    ``p_holm`` is corrected over tasks and pairs of sides; that of the averages over pairs of sides.
    """

    WHAT: ClassVar[str] = ComparisonResult.WHAT
    """What the file is, in error messages."""

    kind: Literal["comparisons"] = "comparisons"
    """The kind of the file."""
    sides: list[ComparedSide]
    """All sides."""
    config: ComparisonSettings
    """How the sides were compared."""
    provenance: Provenance = field(default_factory=Provenance)
    """Date, command, commit, package versions and hardware."""
    not_compared: list[str]
    """Tasks that not all runs have."""
    comparisons: list[PairTests]
    """The tests of each pair of sides, in the order (0, 1), (0, 2) ... (1, 2) ..."""

    @property
    def ranked(self) -> bool:
        """Whether the sides are systems that any tool scored, which have ranks."""
        return any(side.ranks for side in self.sides)

    def between(self, tests: PairTests) -> ComparisonResult:
        """The comparison of two of the sides, with their entry of ``comparisons``."""
        first, second = tests.pair
        return ComparisonResult(
            first=self.sides[first],
            second=self.sides[second],
            config=self.config,
            provenance=self.provenance,
            not_compared=[],
            **tests.tests(),
        )

    def __post_init__(self) -> None:
        """Pairs of sides without tests, or tests on different tasks."""
        expected = [list(pair) for pair in combinations(range(len(self.sides)), 2)]
        if not expected or [tests.pair for tests in self.comparisons] != expected:
            raise InvalidValueError("does not hold one comparison for each pair of sides, in order", "comparisons")
        if len({(frozenset(tests.tasks), frozenset(tests.averages)) for tests in self.comparisons}) > 1:
            raise InvalidValueError("does not hold the same tasks for each pair of sides", "comparisons")
