"""Evaluation results: scores on similarity, transfer and retrieval tasks, with what a paired test needs.

Cosines and predictions are stored in millionths (six decimals are what float32 embeddings carry), and scores are
computed from the stored values. A file alone reproduces its scores, and two files are enough for a paired test.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from nearfar.evaluation.results.base import Estimate, Result
from nearfar.evaluation.results.environment import Provenance
from nearfar.evaluation.results.record import OMITTED, Number, Record
from nearfar.evaluation.results.retrieval import RetrievalScores
from nearfar.evaluation.results.seen import SeenShares
from nearfar.evaluation.results.similarity import SimilarityAverage, SimilarityScores
from nearfar.validation import InvalidValueError, Tagged


@dataclass(frozen=True, kw_only=True)
class PenaltyGrid(Record):
    """The l2 penalties that a probe was tuned over; empty where there was nothing to tune."""

    l2: list[float] | None = field(default=None, metadata=OMITTED)
    """Penalties of SentEval's classifier."""
    c: list[float] | None = field(default=None, metadata=OMITTED)
    """Inverse penalties of exact logistic regression."""
    dev_accuracy: list[list[float]] | None = field(default=None, metadata=OMITTED)
    """Accuracy x 100 by penalty, for each fold of a pool, else one list."""


@dataclass(frozen=True, kw_only=True)
class ClassificationScores(Record):
    """Predictions of a probe or a fine-tuned classifier on one task with labels."""

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

    @property
    def main(self) -> Estimate:
        """The estimate that tables show first: accuracy."""
        return self.accuracy

    @property
    def compared(self) -> Estimate:
        """The estimate that comparisons test: accuracy."""
        return self.accuracy

    @property
    def size(self) -> int:
        """Number of tested rows."""
        return self.rows

    def metric(self, name: str) -> Estimate | None:
        """``accuracy``, ``f1`` or ``matthews``; None where the task does not have it."""
        return {"accuracy": self.accuracy, "f1": self.f1, "matthews": self.matthews}.get(name)

    def __post_init__(self) -> None:
        """Not one prediction for each gold label."""
        _check_predictions(self.gold, predicted=self.predicted)
        _check_score(accuracy=self.accuracy)


@dataclass(frozen=True, kw_only=True)
class RelatednessScores(Record):
    """Predictions of a learned regression on one task with scores."""

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

    @property
    def main(self) -> Estimate:
        """The estimate that tables show first: Pearson."""
        return self.pearson

    @property
    def compared(self) -> Estimate:
        """The estimate that comparisons test: Spearman."""
        return self.spearman

    @property
    def size(self) -> int:
        """Number of tested pairs."""
        return self.pairs

    def metric(self, name: str) -> Estimate | None:
        """``pearson`` or ``spearman``; None for other metrics."""
        return {"pearson": self.pearson, "spearman": self.spearman}.get(name)

    def __post_init__(self) -> None:
        """Not one prediction for each gold score."""
        _check_predictions(self.gold, predicted_e6=self.predicted_e6)
        _check_score(spearman=self.spearman)


if TYPE_CHECKING:
    TransferScores: TypeAlias = ClassificationScores | RelatednessScores
else:

    class TransferScores(Tagged):
        """The scores on one task, told apart by ``kind``: msgspec reads no union of dataclasses."""

        kinds: ClassVar[Mapping[str, type]] = {"classification": ClassificationScores, "relatedness": RelatednessScores}


@dataclass(frozen=True, kw_only=True)
class TransferAverage(Record):
    """The mean accuracy over several transfer tasks."""

    tasks: list[str]
    accuracy: Estimate


@dataclass(frozen=True, kw_only=True)
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

    def unusual(self) -> list[str]:
        """The settings of the classifier, in words, that are not those of SentEval's published results."""
        rate = 1e-2 if self.optimiser == "rmsprop" else 1e-3
        described = (
            (self.optimiser, "adam", "{}"),
            (self.learning_rate, rate, "learning rate {:g}"),
            (self.batch_size, 64, "batch size {}"),
            (self.tenacity, 5, "tenacity {}"),
            (self.epoch_size, 4, "a check every {} epochs"),
            (self.max_epochs, 200, "at most {} epochs"),
        )
        words = [text.format(value) for value, usual, text in described if value not in (None, usual)]
        if self.l2 not in (None, [1e-5, 1e-4, 1e-3, 1e-2]):
            words.append("L2 " + "/".join(f"{penalty:g}" for penalty in self.l2 or ()))
        return words


@dataclass(frozen=True, kw_only=True)
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
        unusual = self.probe.unusual() if self.probe else []
        return ", ".join([self.protocol, f"{self.nhid} hidden units", f"{self.folds} folds", *unusual])


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class EvaluationResult(Result):
    """What ``nearfar evaluate`` and ``nearfar finetune`` write."""

    WHAT: ClassVar[str] = "a result file of nearfar evaluate"
    """What the file is, in error messages."""

    kind: Literal["evaluation"] = "evaluation"
    """Tells result files apart."""
    model: str
    """Name or folder."""
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
    def training_seed(self) -> int | None:
        """The seed of the training run that made the model, where it is known."""
        return self.config.get("training_seed")

    @property
    def transductive(self) -> bool:
        """Whether the model is fitted on the texts of each task."""
        return bool(self.config.get("transductive"))

    @property
    def resamples(self) -> int:
        """Bootstrap resamples behind each interval; 0 where there are no intervals."""
        return int(self.config.get("resamples") or 0)

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


def _check_predictions(gold: list[Number], **predictions: list[Number]) -> None:
    for key, predicted in predictions.items():
        if len(gold) != len(predicted):
            raise InvalidValueError(f"has {len(predicted)} predictions for {len(gold)} gold values", key)


def _check_score(**estimates: Estimate) -> None:
    for key, estimate in estimates.items():
        if estimate.score is None and estimate.reason is None:
            raise InvalidValueError("is null without a reason", key, "score")
