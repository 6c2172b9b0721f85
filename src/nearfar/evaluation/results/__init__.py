"""Result files: typed models of every kind, their format version, and how they are read and written.

A result is a JSON file with a format version (``schema``), a ``kind`` and its provenance. The models are
:class:`EvaluationResult`, :class:`ComparisonResult`, :class:`PairwiseResult`, :class:`GeometryResult`,
:class:`StudyTable` and :class:`ExportResult`; each has ``load(file)``, ``save(file)`` and ``to_dict()``.
:mod:`nearfar.evaluation.schema` prints their JSON Schema.
"""

from nearfar.evaluation.results.base import SCHEMA, Estimate, Result
from nearfar.evaluation.results.comparison import (
    AverageTest,
    ComparedSide,
    ComparisonResult,
    ComparisonSettings,
    PairedTest,
    PairTests,
    PairwiseResult,
    SeedTest,
    TaskTest,
)
from nearfar.evaluation.results.environment import Provenance, provenance
from nearfar.evaluation.results.evaluation import (
    ClassificationScores,
    EvaluationResult,
    FinetuningSummary,
    PenaltyGrid,
    ProbeSettings,
    RelatednessScores,
    TransferAverage,
    TransferResults,
    TransferScores,
)
from nearfar.evaluation.results.export import ExportResult, ExportSide
from nearfar.evaluation.results.files import (
    check_output,
    digest,
    is_result,
    load_result,
    make_folder,
    parse_result,
)
from nearfar.evaluation.results.geometry import (
    ExplorerPage,
    GeometryResult,
    GeometrySettings,
    LayerTask,
    MeasuredPairs,
    ModelGeometry,
    PlottedTexts,
    Projection,
)
from nearfar.evaluation.results.retrieval import RetrievalScores
from nearfar.evaluation.results.seen import SeenShares, UnseenScores
from nearfar.evaluation.results.similarity import (
    AggregateEstimates,
    SimilarityAverage,
    SimilarityScores,
    SubsetScores,
)
from nearfar.evaluation.results.study_table import (
    GroupScore,
    MissingCell,
    StudyCell,
    StudyComparison,
    StudyCurve,
    StudyGroup,
    StudyProvenance,
    StudyTable,
    StudyTest,
)
from nearfar.evaluation.results.training import (
    DevEvaluation,
    TrainingRecord,
    TrainingStep,
    is_dev_evaluation,
)

__all__ = [
    "SCHEMA",
    "AggregateEstimates",
    "AverageTest",
    "ClassificationScores",
    "ComparedSide",
    "ComparisonResult",
    "ComparisonSettings",
    "DevEvaluation",
    "Estimate",
    "EvaluationResult",
    "ExplorerPage",
    "ExportResult",
    "ExportSide",
    "FinetuningSummary",
    "GeometryResult",
    "GeometrySettings",
    "GroupScore",
    "LayerTask",
    "MeasuredPairs",
    "MissingCell",
    "ModelGeometry",
    "PairTests",
    "PairedTest",
    "PairwiseResult",
    "PenaltyGrid",
    "PlottedTexts",
    "ProbeSettings",
    "Projection",
    "Provenance",
    "RelatednessScores",
    "Result",
    "RetrievalScores",
    "SeedTest",
    "SeenShares",
    "SimilarityAverage",
    "SimilarityScores",
    "StudyCell",
    "StudyComparison",
    "StudyCurve",
    "StudyGroup",
    "StudyProvenance",
    "StudyTable",
    "StudyTest",
    "SubsetScores",
    "TaskTest",
    "TrainingRecord",
    "TrainingStep",
    "TransferAverage",
    "TransferResults",
    "TransferScores",
    "UnseenScores",
    "check_output",
    "digest",
    "is_dev_evaluation",
    "is_result",
    "load_result",
    "make_folder",
    "parse_result",
    "provenance",
]
