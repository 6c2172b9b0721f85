"""What a table is made of: the results of each run of a study, and the groups that they form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nearfar.evaluation.results import EvaluationResult, GeometryResult

CellResult: TypeAlias = EvaluationResult | GeometryResult | Mapping[str, Any]
Curve: TypeAlias = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class FinishedCell:
    """One run of a study and its results; a run without results says in ``missing`` why.

    ``results`` are the results of its last steps: evaluations (fine-tuning writes one too), geometry, or a mapping of
    names to numbers, each of which is a column (``updates_per_second``); its optional key ``provenance`` is a
    :class:`~nearfar.evaluation.results.Provenance`. ``validation`` is x 100. ``curves`` are measures over training:
    name -> points (step, value).
    """

    row: str
    coordinates: Mapping[str, str] = field(default_factory=dict)
    replicate: Mapping[str, Any] = field(default_factory=dict)
    results: Sequence[CellResult] = ()
    validation: float | None = None
    seconds: float | None = None
    key: str = ""
    missing: str | None = None
    curves: Mapping[str, Curve] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The cell in words, for messages: ``scl (lambda = 0.3; seed = 1)``."""
        return f"{self.row}{describe({**self.coordinates, **self.replicate})}"


def describe(coordinates: Mapping[str, Any]) -> str:
    """Coordinates in brackets, with a space before them; nothing where there are none."""
    return f" ({'; '.join(f'{name} = {value}' for name, value in coordinates.items())})" if coordinates else ""
