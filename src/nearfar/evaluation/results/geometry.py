"""Geometry results: measures of embedding spaces, singular values, and scores of layers."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from nearfar.evaluation.results.base import Result
from nearfar.evaluation.results.environment import Provenance
from nearfar.evaluation.results.record import OMITTED, Record
from nearfar.validation import InvalidValueError


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class LayerTask(Record):
    """The similarity task that layers are scored on."""

    spec: str
    pairs: int
    digest: str | None = None


@dataclass(frozen=True, kw_only=True)
class PlottedTexts(Record):
    """The labelled texts of the t-SNE plot."""

    spec: str
    texts: int
    labels: list[str]


@dataclass(frozen=True, kw_only=True)
class Projection(Record):
    """Where the plotted texts lie by t-SNE of one model; positions have no unit."""

    similar: list[list[float]] = field(default_factory=list)
    """``[x, y, x, y]`` of the two texts of each of the most similar pairs."""
    dissimilar: list[list[float]] = field(default_factory=list)
    """The same of the least similar pairs."""
    labelled: dict[str, list[list[float]]] = field(default_factory=dict)
    """Label -> ``[x, y]`` of each of its texts."""

    def __post_init__(self) -> None:
        """Positions that are not two or four numbers."""
        for key, points in (("similar", self.similar), ("dissimilar", self.dissimilar)):
            if any(len(point) != 4 for point in points):
                raise InvalidValueError("does not hold four numbers for each pair", key)
        if any(len(point) != 2 for points in self.labelled.values() for point in points):
            raise InvalidValueError("does not hold two numbers for each text", "labelled")


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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
