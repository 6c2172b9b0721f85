"""Evaluation results: scores on similarity, transfer and retrieval tasks, with what a paired test needs.

Cosines and predictions are stored in millionths (six decimals are what float32 embeddings carry), and scores are
computed from the stored values. A file alone reproduces its scores, and two files are enough for a paired test.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from msgspec import Meta

from nearfar.evaluation.render import notes
from nearfar.evaluation.results.record import OMITTED, Estimate, Number, Provenance, Record, Result, check_length
from nearfar.validation import InvalidValueError, Tagged

Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]


class SeenShares(Record):
    """Shares, in [0, 1], of a task's pairs and texts that the model was trained on, or that chose its training step.

    Pairs and texts are compared by hashes of their letters and digits (:mod:`nearfar.data.fingerprints`). Only
    training with nearfar is known: the model that training started from may have seen more.
    """

    pairs: Share | None = field(default=None, metadata=OMITTED)
    """Share of the pairs; null where rows have one text."""
    texts: Share
    """Share of the distinct texts."""
    chosen_pairs: Share | None = field(default=None, metadata=OMITTED)
    """Share of the pairs that were not trained on, but chose the step; part of ``pairs``."""
    chosen_texts: Share
    """The same of the texts; part of ``texts``."""
    dev: bool | None = field(default=None, metadata=OMITTED)
    """True if the whole task is in the dev set that chose the step."""

    @property
    def chosen(self) -> float:
        """The share of what chose the step: of the pairs, or of the texts where rows have one text."""
        return self.chosen_texts if self.chosen_pairs is None else self.chosen_pairs


class _Measured(Record):
    """Scores by the name of their metric, which is that of a field."""

    METRICS: ClassVar[tuple[str, ...]] = ("spearman", "pearson")

    def metric(self, name: str) -> Any:
        """The estimate of a metric, of a similarity task by aggregate; None where there is none."""
        return getattr(self, name) if name in self.METRICS else None


class _Task(_Measured):
    """Scores on one task.

    ``SIZE`` names the field with the number of its rows, ``COMPARED`` the metric of tests, and ``PREDICTED``
    the field with predictions for the rows of ``gold``, where there are some.
    """

    SIZE: ClassVar[str] = "pairs"
    COMPARED: ClassVar[str] = "spearman"
    PREDICTED: ClassVar[str] = ""

    @property
    def size(self) -> int:
        """Number of pairs, of tested rows or of queries."""
        return int(getattr(self, self.SIZE))

    @property
    def compared(self) -> Estimate:
        """The estimate that comparisons test by default."""
        compared: Estimate = self.metric(self.COMPARED)
        return compared

    def __post_init__(self) -> None:
        """Not one unit for each row, not one prediction for each gold value, or no score and no reason."""
        if (units := getattr(self, "units", None)) is not None:
            check_length(units, self.size, "units", of=self.SIZE)
        if self.PREDICTED:
            predicted, gold = len(getattr(self, self.PREDICTED)), len(getattr(self, "gold", ()))
            if predicted != gold:
                raise InvalidValueError(f"has {predicted} predictions for {gold} gold values", self.PREDICTED)
            if self.compared.score is None and self.compared.reason is None:
                raise InvalidValueError("is null without a reason", self.COMPARED, "score")


class UnseenScores(Record):
    """Scores on the pairs of a similarity task that the model was neither trained on nor chosen by."""

    pairs: int
    """Number of unseen pairs."""
    spearman: Estimate
    """Over the unseen pairs of all subsets together, x 100."""
    seen_pairs: list[Annotated[int, Meta(ge=0)]]
    """Positions, from 0 and ascending, of the pairs that the model has seen, counted over all subsets in order."""


class AggregateEstimates(Record):
    """A correlation x 100 of a task with subsets, aggregated in three ways."""

    all: Estimate
    """Over the pairs of all subsets together."""
    mean: Estimate
    """The mean of the subsets' correlations."""
    wmean: Estimate
    """Their mean weighted by number of pairs."""

    def of(self, aggregate: str) -> Estimate:
        """The estimate of an aggregate: ``all``, ``mean`` or ``wmean``."""
        return dict(self.items())[aggregate]

    def items(self) -> list[tuple[str, Estimate]]:
        """The three aggregates by name."""
        return [("all", self.all), ("mean", self.mean), ("wmean", self.wmean)]


class SubsetScores(_Measured):
    """One subset of a similarity task."""

    pairs: int
    digest: str
    """Fingerprint of texts and gold scores in order; equal digests make two files comparable pair by pair."""
    spearman: Estimate
    pearson: Estimate
    gold: list[Number]
    cosines_e6: list[Number]
    """Cosines, or what the model compares by, in millionths, whole numbers."""

    def __post_init__(self) -> None:
        """Arrays whose length is not the number of pairs."""
        check_length(self.gold, self.pairs, "gold", of="pairs")
        check_length(self.cosines_e6, self.pairs, "cosines_e6", of="pairs")


class SimilarityScores(_Task):
    """Scores on one similarity task."""

    kind: ClassVar[Literal["similarity"]] = "similarity"
    main: ClassVar[str] = "spearman"

    pairs: int
    zero_vectors: int = 0
    """Pairs with a zero vector, whose cosine is set to 0."""
    spearman: AggregateEstimates
    pearson: AggregateEstimates
    subsets: dict[str, SubsetScores]
    seen: SeenShares | None = field(default=None, metadata=OMITTED)
    """What of the task the model has seen in training, where that is known."""
    unseen: UnseenScores | None = field(default=None, metadata=OMITTED)
    """Scores without the pairs that the model has seen, where it has seen some."""
    units: list[int] | None = field(default=None, metadata=OMITTED)
    """The independent unit of each pair, numbered from 0 in the order of the first; null where each is its own.
    Pairs that share a text are one unit, counted over all subsets in order."""

    def __post_init__(self) -> None:
        """A task without subsets, or a seen pair that it does not have."""
        super().__post_init__()
        last = max(self.unseen.seen_pairs if self.unseen else [], default=-1)
        if last >= self.pairs:
            raise InvalidValueError(f"names pair {last}, and 'pairs' is {self.pairs}", "unseen", "seen_pairs")
        if not self.subsets:
            raise InvalidValueError("is empty", "subsets")


class SimilarityAverage(_Measured):
    """The mean over several similarity tasks."""

    tasks: list[str]
    spearman: AggregateEstimates
    pearson: AggregateEstimates


class RetrievalScores(_Task):
    """Scores on one retrieval task."""

    SIZE: ClassVar[str] = "queries"

    kind: Literal["retrieval"] = "retrieval"
    queries: Annotated[int, Meta(ge=1)]
    """Number of queries."""
    documents: int
    """Number of documents that were ranked for each query."""
    main: str
    """The measure that tables and comparisons show first."""
    measures: dict[str, Estimate]
    """Means over queries x 100: ``ndcg@10``, ``mrr@10``, ``map@100``, ``recall@1``, ``recall@10``, ``recall@100``."""
    counts: dict[str, int] = field(default_factory=dict)
    """What was left out or is worth knowing, in words, such as ``queries without relevant documents`` -> number."""
    per_query: dict[str, list[Number]]
    """Measure -> its value for each query in order, 0 to 1, rounded to six decimals."""
    digest: str
    """Fingerprint of queries, documents and relevance; equal digests make two files comparable query by query."""
    seen: SeenShares | None = field(default=None, metadata=OMITTED)
    """What of the queries and their relevant documents the model has seen in training, where that is known."""
    units: list[int] | None = field(default=None, metadata=OMITTED)
    """The independent unit of each query, numbered from 0 in the order of the first; null where each is its own.
    Queries of the same text are one unit."""

    @property
    def compared(self) -> Estimate:
        """The estimate that comparisons test by default."""
        return self.measures[self.main]

    def metric(self, name: str) -> Estimate | None:
        """The estimate of a measure; None for other metrics."""
        return self.measures.get(name)

    def __post_init__(self) -> None:
        """A main measure without a score, or not one value for each query."""
        super().__post_init__()
        if self.main not in self.measures:
            raise InvalidValueError(f"has no {self.main!r}, the main measure", "measures")
        for measure in self.measures:
            check_length(self.per_query.get(measure, []), self.queries, "per_query", measure, of="queries")


class PenaltyGrid(Record):
    """The l2 penalties that a probe was tuned over; empty where there was nothing to tune."""

    l2: list[float] | None = field(default=None, metadata=OMITTED)
    """Penalties of SentEval's classifier."""
    c: list[float] | None = field(default=None, metadata=OMITTED)
    """Inverse penalties of exact logistic regression."""
    dev_accuracy: list[list[float]] | None = field(default=None, metadata=OMITTED)
    """Accuracy x 100 by penalty, for each fold of a pool, else one list."""


class ClassificationScores(_Task):
    """Predictions of a probe or a fine-tuned classifier on one task with labels."""

    SIZE: ClassVar[str] = "rows"
    COMPARED: ClassVar[str] = "accuracy"
    PREDICTED: ClassVar[str] = "predicted"
    METRICS: ClassVar[tuple[str, ...]] = ("accuracy", "f1", "matthews")
    main: ClassVar[str] = "accuracy"

    kind: Literal["classification"] = "classification"
    protocol: str
    """``senteval``, ``exact`` or ``finetune``."""
    rows: int
    """Number of tested rows."""
    classes: list[str] = field(default_factory=list)
    accuracy: Estimate
    """Of a pool: the mean over its folds, as in SentEval."""
    f1: Estimate | None = field(default=None, metadata=OMITTED)
    """F1 of the second class, for pairs with two classes (MRPC)."""
    dev_accuracy: float | None = None
    """Accuracy x 100 on the rows that chose the penalties, or the step of fine-tuning."""
    grid: PenaltyGrid = field(default_factory=PenaltyGrid)
    chosen: list[float] = field(default_factory=list)
    """The chosen penalty of each fold, else of the one split."""
    fold_accuracies: list[float] = field(default_factory=list)
    gold: list[Number] = field(default_factory=list)
    """Labels of the tested rows in the order of the file; empty where the task has no result."""
    predicted: list[Number] = field(default_factory=list)
    matthews: Estimate | None = field(default=None, metadata=OMITTED)
    """Matthews correlation x 100, of a fine-tuned classifier with two labels."""
    dev_matthews: float | None = field(default=None, metadata=OMITTED)
    dev_f1: float | None = field(default=None, metadata=OMITTED)
    digest: str
    """Fingerprint of all texts and labels in order."""
    seen: SeenShares | None = field(default=None, metadata=OMITTED)
    """What of the tested rows the model has seen in training, where that is known."""
    units: list[int] | None = field(default=None, metadata=OMITTED)
    """The independent unit of each tested row, numbered from 0 in the order of the first; null where each is its own.
    Rows that share a text are one unit."""


class RelatednessScores(_Task):
    """Predictions of a learned regression on one task with scores."""

    PREDICTED: ClassVar[str] = "predicted_e6"
    main: ClassVar[str] = "pearson"

    kind: Literal["relatedness"] = "relatedness"
    pairs: int
    """Number of tested pairs."""
    pearson: Estimate
    spearman: Estimate
    mse: float | None = None
    dev_pearson: float | None = None
    """Pearson x 100 on the validation rows."""
    dev_spearman: float | None = field(default=None, metadata=OMITTED)
    """Spearman x 100 on the validation rows, of a fine-tuned regression."""
    gold: list[Number] = field(default_factory=list)
    predicted_e6: list[Number] = field(default_factory=list)
    """Predictions in millionths, whole numbers."""
    digest: str
    seen: SeenShares | None = field(default=None, metadata=OMITTED)
    """What of the tested pairs the model has seen in training, where that is known."""
    units: list[int] | None = field(default=None, metadata=OMITTED)
    """The independent unit of each tested pair, numbered from 0 in the order of the first; null where each is its own.
    Pairs that share a text are one unit."""


if TYPE_CHECKING:
    TransferScores: TypeAlias = ClassificationScores | RelatednessScores
else:

    class TransferScores(Tagged):
        """The scores on one task, told apart by ``kind``: msgspec reads no union of dataclasses."""

        kinds: ClassVar[Mapping[str, type]] = {"classification": ClassificationScores, "relatedness": RelatednessScores}


class TransferAverage(_Measured):
    """The mean accuracy over several transfer tasks."""

    METRICS: ClassVar[tuple[str, ...]] = ("accuracy",)

    tasks: list[str]
    accuracy: Estimate


class ProbeSettings(Record):
    """How probes were trained; where a file has no such entry, with the settings of SentEval's published results."""

    preset: str | None = field(default=None, metadata=OMITTED)
    """``senteval``, ``liao`` or ``kim``: the preset that the settings were derived from."""
    seed: int = 1111
    """Seed of the classifiers: initial weights, held-out rows and minibatches."""
    fold_seed: int = 1111
    """Seed of the folds."""
    optimiser: str | None = field(default=None, metadata=OMITTED)
    """``adam`` or ``rmsprop``; this and what follows are settings of SentEval's classifier alone."""
    learning_rate: float | None = field(default=None, metadata=OMITTED)
    batch_size: int | None = field(default=None, metadata=OMITTED)
    tenacity: int | None = field(default=None, metadata=OMITTED)
    """Checks without improvement before the one that stops training."""
    epoch_size: int | None = field(default=None, metadata=OMITTED)
    """Epochs between checks."""
    max_epochs: int | None = field(default=None, metadata=OMITTED)
    l2: list[float] | None = field(default=None, metadata=OMITTED)
    """The penalties to choose from."""


class TransferResults(Record):
    """Transfer tasks, or the task that a classifier was fine-tuned on."""

    protocol: str
    nhid: int = 0
    """Hidden units of SentEval's classifier."""
    folds: int = 10
    """Folds of cross-validation."""
    probe: ProbeSettings | None = field(default=None, metadata=OMITTED)
    """The other settings of the probes."""
    averages: dict[str, TransferAverage]
    tasks: dict[str, TransferScores]

    def describe_probe(self) -> str:
        """How the tasks were probed, in words, without seeds: ``senteval, 0 hidden units, 10 folds``.

        The other settings are listed where they are not those of SentEval's published results.
        """
        unusual = notes("unusual_probe", self.probe) if self.probe else []
        return ", ".join([self.protocol, f"{self.nhid} hidden units", f"{self.folds} folds", *unusual])


class FinetuningSummary(Record):
    """How a fine-tuned classifier was trained, and its validation score."""

    validation: float
    """Score x 100 of the kept weights on the validation rows, by the metric that chooses the step."""
    metric: str
    """That metric."""
    steps: int
    best_step: int
    seconds: float
    """Duration of the training steps, without evaluation."""
    updates_per_second: float | None = None


class EvaluationResult(Result):
    """What ``nearfar evaluate`` and ``nearfar finetune`` write."""

    WHAT: ClassVar[str] = "a result file of nearfar evaluate"
    """What the file is, in error messages."""

    kind: Literal["evaluation"] = "evaluation"
    """Tells result files apart."""
    model: str
    """Name or folder."""
    fingerprint: str | None = field(default=None, metadata=OMITTED)
    """SHA-256 over the files of the model (16 digits); null for what is no folder."""
    config: dict[str, Any]
    """The settings that affect the numbers, and ``training_seed`` and ``transductive``."""
    provenance: Provenance = field(default_factory=Provenance)
    """Date, command, commit, package versions and hardware."""
    unavailable: dict[str, str] = field(default_factory=dict)
    """Task -> why it has no score."""
    averages: dict[str, SimilarityAverage] = field(default_factory=dict)
    """Means over similarity tasks, by name."""
    tasks: dict[str, SimilarityScores]
    """Scores on each similarity task, by its name."""
    texts: int | None = None
    """Number of distinct texts that were encoded."""
    dim: int | None = None
    """Width of an embedding."""
    transfer: TransferResults | None = field(default=None, metadata=OMITTED)
    """Scores on transfer tasks, or on the task of a fine-tuned classifier."""
    retrieval: dict[str, RetrievalScores] = field(default_factory=dict, metadata=OMITTED)
    """Scores on each retrieval task, by its name."""
    training: FinetuningSummary | None = field(default=None, metadata=OMITTED)
    """Of a fine-tuned classifier."""

    @property
    def title(self) -> str:
        """The model, and how its vectors were shortened or searched: ``model (chunk 128, hybrid)``."""
        given = {name: self.config.get(name) for name in ("dimensions", "quantize", "chunk", "hybrid")}
        words = [name if value is True else f"{name} {value}" for name, value in given.items() if value]
        return f"{self.model} ({', '.join(words)})" if words else self.model

    @property
    def training_seed(self) -> int | None:
        """The seed of the training run that made the model, where it is known."""
        return self.config.get("training_seed")

    @property
    def resamples(self) -> int:
        """Bootstrap resamples behind each interval; 0 where there are no intervals."""
        return int(self.config.get("resamples") or 0)

    @property
    def folds(self) -> int:
        """Number of folds, if each row was tested by one of several models, trained without its fold; else 0."""
        return int((self.config.get("held_out") or {}).get("folds") or 0)

    @property
    def all_tasks(self) -> dict[str, SimilarityScores | TransferScores | RetrievalScores]:
        """All tasks by name: similarity, transfer, retrieval."""
        return {**self.tasks, **(self.transfer.tasks if self.transfer else {}), **self.retrieval}

    def __post_init__(self) -> None:
        """Settings of a wrong type."""
        for key in ("training_seed", "resamples"):
            value = self.config.get(key)
            if value is not None and type(value) is not int:
                raise InvalidValueError("must be a whole number or null", "config", key, value=value)
