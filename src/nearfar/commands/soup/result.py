"""The record of an average of models, ``soup.json`` in its model folder."""

from dataclasses import dataclass, field
from pathlib import Path

from nearfar.disk import read_json
from nearfar.evaluation.results import Provenance
from nearfar.evaluation.results.record import OMITTED, Record

SOUP_FILE = "soup.json"


@dataclass(frozen=True, kw_only=True)
class Ingredient(Record):
    """One of the models."""

    model: str
    """As it was named: a folder, or owner/name on the hub."""
    fingerprint: str
    """SHA-256 over the files of the model, 16 hexadecimal digits."""
    weight: float
    """Its share in the average, in [0, 1]; 0 if a greedy average left it out."""
    score: float | None = field(default=None, metadata=OMITTED)
    """Its score on the dev set, x 100; only of greedy averages."""


@dataclass(frozen=True, kw_only=True)
class SoupResult(Record):
    """An average of models."""

    models: list[Ingredient]
    """All models, in the order in which they were named."""
    evaluate_on: str | None = field(default=None, metadata=OMITTED)
    """The dev set of a greedy average."""
    metric: str | None = field(default=None, metadata=OMITTED)
    """The name of the scores."""
    score: float | None = field(default=None, metadata=OMITTED)
    """The score of the average on the dev set, x 100."""
    provenance: Provenance

    @classmethod
    def load(cls, file: Path) -> "SoupResult":
        """Read the record of an average.

        Raises:
            NearfarError: it is missing or damaged.
        """
        return cls.from_dict(read_json(file, otherwise="Average the models again."), source=file)

    @property
    def used(self) -> list[Ingredient]:
        """The models that are part of the average."""
        return [one for one in self.models if one.weight > 0]
