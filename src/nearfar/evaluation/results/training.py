"""Records of training runs: run.json and metrics.jsonl as reports read them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from nearfar.evaluation.results.environment import Provenance
from nearfar.evaluation.results.record import OMITTED, Number, Record
from nearfar.types import NearfarError
from nearfar.validation import InvalidValueError


@dataclass(frozen=True, kw_only=True)
class TrainingRecord(Provenance):
    """The run.json of a finished run, with its provenance; scores are in [-1, 1].

    Keys that reports do not read are left out. Only ``config`` is required.
    """

    config: dict[str, Any]
    data: list[str] = field(default_factory=list)
    """Facts about the training data."""
    dev: str | None = field(default=None, metadata=OMITTED)
    """The dev set."""
    metric: str | None = field(default=None, metadata=OMITTED)
    """The metric on the dev set."""
    precision: str | None = field(default=None, metadata=OMITTED)
    """What ``auto`` was resolved to."""
    start_score: float | None = None
    best_score: float | None = None
    best_step: Number | None = None
    step: Number | None = None
    seconds: float | None = None
    items: Number | None = None
    history: list[list[Number]] = field(default_factory=list)
    """``[step, score]`` of each evaluation."""

    def __post_init__(self) -> None:
        """Entries of the history that are not pairs."""
        if any(len(point) != 2 for point in self.history):
            raise InvalidValueError("does not hold pairs of step and score", "history")


@dataclass(frozen=True)
class TrainingStep(Record):
    """A line of metrics.jsonl about a training step."""

    step: int
    loss: float


@dataclass(frozen=True)
class DevEvaluation(Record):
    """A line of metrics.jsonl about an evaluation on the dev set: ``step``, ``metric``, ``best`` and measures.

    The key of the score is the name of the metric.
    """

    step: int
    metric: str | None
    """None where there is nothing to score, only geometry."""
    score: float | None
    """In [-1, 1]."""
    measures: dict[str, Any] = field(default_factory=dict)
    """Other numbers of the line, such as ``uniformity``."""

    @classmethod
    def from_line(cls, line: Mapping[str, Any], *, source: object) -> Self:
        """The evaluation of a line.

        Raises:
            NearfarError: a missing key or a value of the wrong type.
        """
        metric = line["metric"]
        if isinstance(metric, str) and metric not in line:
            raise NearfarError(
                f"{source}: is damaged, or was written by another version of nearfar: it lacks {metric!r}."
            )
        score = line[metric] if isinstance(metric, str) else None
        known = ("step", "metric", "best", "score", metric)
        measures = {key: value for key, value in line.items() if key not in known}
        content = {"metric": metric, "score": score, "measures": measures}
        return cls.from_dict({"step": line["step"], **content} if "step" in line else content, source=source)

    def __post_init__(self) -> None:
        """A metric without a score."""
        if self.metric is not None and self.score is None:
            raise InvalidValueError("is not a number", "score")


def is_dev_evaluation(line: object) -> bool:
    """Whether a line of metrics.jsonl is about an evaluation on the dev set."""
    return isinstance(line, Mapping) and "metric" in line
