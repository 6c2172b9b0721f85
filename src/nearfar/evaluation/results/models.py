"""Records of models besides scores: their training (run.json and metrics.jsonl), geometry and export."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, Literal, Self

from nearfar.evaluation.results.record import OMITTED, Number, Provenance, Record, Result
from nearfar.validation import InvalidValueError


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
    history: list[tuple[Number, Number]] = field(default_factory=list)
    """``[step, score]`` of each evaluation."""


class TrainingStep(Record, kw_only=False):
    """A line of metrics.jsonl about a training step."""

    step: int
    loss: float


class DevEvaluation(Record, kw_only=False):
    """A line of metrics.jsonl about an evaluation on the dev set: ``step``, ``metric``, ``best`` and measures.

    The key of the score is the name of the metric.
    """

    step: int
    metric: str | None
    """None where there is nothing to score, only geometry."""
    score: float | None
    """In [-1, 1]."""
    measures: dict[str, float | None] = field(default_factory=dict)
    """Other numbers of the line, such as ``uniformity``."""

    @classmethod
    def from_line(cls, line: Mapping[str, Any], *, source: object) -> Self:
        """The evaluation of a line.

        Raises:
            NearfarError: a missing key or a value of the wrong type.
        """
        metric = line.get("metric")
        measures = {key: line[key] for key in line if key not in ("step", "metric", "best", "score", metric)}
        return cls.from_dict({**line, "score": line.get(str(metric)), "measures": measures}, source=source)

    def __post_init__(self) -> None:
        """A metric without a score."""
        if self.metric is not None and self.score is None:
            raise InvalidValueError(f"lacks {self.metric!r}")


class GeometrySettings(Record):
    """The settings of ``nearfar geometry``; null where the default data set was used."""

    pairs: str | None = None
    positive_above: float
    """Pairs with a score above this are positive."""
    task: str | None = None
    labelled: str | None = None
    labelled_limit: int | None = None
    pooling: str | None = None
    max_length: int | None = None
    prompt: str | None = field(default=None, metadata=OMITTED)
    """The prompt, or its name; null for that of each model."""
    seed: int = 0


class MeasuredPairs(Record):
    """The scored pairs that the measures are computed on."""

    spec: str
    instead_of: str | None
    """The default set, where it could not be loaded and another one was used."""
    pairs: int | None = None
    positives: int
    """Number of positive pairs."""
    texts: int
    """Number of distinct texts."""
    digest: str | None = None


class LayerTask(Record):
    """The similarity task that layers are scored on."""

    spec: str
    pairs: int
    digest: str | None = None


class PlottedTexts(Record):
    """The labelled texts of the t-SNE plot."""

    spec: str
    texts: int
    labels: list[str]


class Projection(Record):
    """Where the plotted texts lie by t-SNE of one model; positions have no unit."""

    similar: list[tuple[float, float, float, float]] = field(default_factory=list)
    """``[x, y, x, y]`` of the two texts of each of the most similar pairs."""
    dissimilar: list[tuple[float, float, float, float]] = field(default_factory=list)
    """The same of the least similar pairs."""
    labelled: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Label -> ``[x, y]`` of each of its texts."""


class ModelGeometry(Record):
    """The measures of one model; see :mod:`nearfar.evaluation.geometry_measures`."""

    model: str | None = None
    """Folder or hub name."""
    pooling: str | None
    """Null for a function."""
    dim: int | None = None
    alignment: float
    uniformity: float
    mean_cosine: float
    effective_rank: float
    isotropy: float
    warning: str | None
    """What to do about a collapsed space."""
    spectrum: list[float]
    """Singular values divided by the largest, in descending order."""
    layers: dict[str, list[float | None]] | None
    """Pooling -> Spearman x 100 on the task, from the embedding layer to the last one; null for a function."""
    projection: Projection | None = field(default=None, metadata=OMITTED)
    """The positions in the plots of pairs and of labelled texts."""


class ExplorerPage(Record):
    """The interactive page that ``nearfar geometry --page`` wrote."""

    file: str
    """Its path."""
    spec: str
    """The source of the texts."""
    texts: int
    """Number of texts on the page."""
    models: list[str]
    """Names of the encoders: one, or before and after."""
    compared: int
    """Number of nearest texts that the change of a neighbourhood compares."""
    mean_change: float | None
    """Mean change of the neighbourhoods (Jaccard distance of the nearest texts); null for one encoder."""
    notes: list[str]
    """Texts that are not shown."""


class GeometryResult(Result):
    """What ``nearfar geometry`` writes."""

    WHAT: ClassVar[str] = "a result file of nearfar geometry"

    kind: Literal["geometry"] = "geometry"
    config: GeometrySettings
    provenance: Provenance = field(default_factory=Provenance)
    pairs: MeasuredPairs
    task: LayerTask | None
    labelled: PlottedTexts | None = None
    unavailable: dict[str, str]
    """Default set -> why it could not be loaded, and how to name another one."""
    plots: list[str] = field(default_factory=list)
    """Names of the image files."""
    models: dict[str, ModelGeometry]
    page: ExplorerPage | None = field(default=None, metadata=OMITTED)
    """The explorer page, where one was written too."""


class ExportSide(Record):
    """One way to compute the outputs of a model, compared with the original in fp32 on the same texts."""

    name: str
    """Runtime and precision, such as ``nearfar fp32`` or ``onnx int8``."""
    difference: float | None = None
    """Largest absolute difference of an output; null for the original."""
    cosine: float | None = None
    """Smallest cosine of an output vector; null for the original and for regression."""
    score: float | None = None
    """Score x 100."""
    texts_per_second: float | None = None


class ExportResult(Result):
    """What ``nearfar export`` writes beside the graph (export.json)."""

    WHAT: ClassVar[str] = "a result file of nearfar export"

    kind: Literal["export"] = "export"
    model: str
    """Folder or hub name of the original."""
    provenance: Provenance = field(default_factory=Provenance)
    format: Literal["onnx", "openvino"]
    quantize: Literal["none", "int8"]
    opset: int
    """Version of ONNX's operator set; an OpenVINO graph is converted from ONNX."""
    inputs: list[str]
    """Names of the graph's inputs, int64 [batch, length]."""
    output: str
    """Name of the graph's first output, float32 [batch, width]."""
    width: int
    """Width of the output: dimensions of an embedding, or number of logits."""
    max_length: int
    """Maximum number of tokens in a text; the tokenizer truncates longer texts."""
    pooling: str | None = field(default=None, metadata=OMITTED)
    """Of an encoder."""
    normalized: bool | None = field(default=None, metadata=OMITTED)
    """Whether the graph scales embeddings to unit length."""
    labels: list[str] | None = field(default=None, metadata=OMITTED)
    """Of a classifier, in the order of the logits; empty for regression."""
    calibrated_on: str | None = field(default=None, metadata=OMITTED)
    """Source and number of the calibration texts."""
    files: dict[str, int]
    """Name of each file of the graph -> its size in bytes."""
    evaluated_on: str
    """Source of the rows that were scored."""
    metric: str
    """Name of the score."""
    texts: int
    """Number of distinct texts that were compared."""
    sides: list[ExportSide]
    """The original first, then the graph in its own precision, then other precisions."""
    problems: list[str] = field(default_factory=list)
    """Why the graph is not equal to the original; not empty only with ``--force``."""


class ThresholdResult(Result):
    """What ``nearfar threshold`` writes; shares and probabilities are from 0 to 1."""

    WHAT: ClassVar[str] = "a file of nearfar threshold"

    kind: Literal["threshold"] = "threshold"
    model: str
    """Folder or hub name of the encoder."""
    provenance: Provenance = field(default_factory=Provenance)
    settings: dict[str, Any]
    """All that determines scores, and ``top`` of a search; with other ones ``search`` and ``dedup`` refuse the file."""
    data: str
    """The judged pairs, or the retrieval task."""
    error: float
    """What the expected share of wrong ones among the hits that a query shows is at most, with ``confidence``."""
    confidence: float
    threshold: float
    """Hits with at least this score are shown."""
    tested: int
    """Number of queries that were tested."""
    shown: int
    """Number of these that show hits."""
    hits: int
    """Number of hits that they show."""
    wrong: int
    """Number of these that are wrong."""
    share: float
    """The share of wrong ones among the hits of a query, mean over the queries that show any."""
    low: float
    """Lower limit of the expected share, with ``confidence``; the upper limit is ``error``."""
    scores: list[float]
    """Ascending scores with a known probability of a right hit, which is linear between them."""
    probabilities: list[float]
    """The probability at each of ``scores``."""
    calibration_error: float
    """Expected calibration error of the probabilities on queries that they were not fitted on."""

    def __post_init__(self) -> None:
        """Probabilities that are not those of the scores."""
        if not 0 < len(self.scores) == len(self.probabilities) or self.scores != sorted(self.scores):
            raise InvalidValueError("must be ascending numbers, as many as probabilities", "scores")

    def __str__(self) -> str:
        """What the threshold means."""
        share = f"{self.error:.2%} of the hits that a query shows"
        return f"Threshold {self.threshold:g}: at most {share} are wrong, with {self.confidence:.1%} confidence"
