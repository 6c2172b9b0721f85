"""The result of an export: what was written, and how the exported graph compares with the original model."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from nearfar.evaluation.results.base import Result
from nearfar.evaluation.results.environment import Provenance
from nearfar.evaluation.results.record import OMITTED, Record


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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
