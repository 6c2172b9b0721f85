"""Fine-tuning studies: every run of a study, and its summary by setting and variant of the loss.

A study has *settings* (number of rows, noise, batch size) and *variants* of the loss; each variant runs on the same
samples of the training rows. Scores are x 100.
"""

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from nearfar.evaluation.results.base import Result, ScoreSummary
from nearfar.evaluation.results.environment import Provenance
from nearfar.evaluation.results.record import InvalidValueError, Record


@dataclass(frozen=True, kw_only=True)
class StudyRun(Record):
    """One run of a study, a line of cells.jsonl."""

    setting: str
    variant: str
    sample: int
    validation: float
    """The task's main metric on the validation rows."""
    test: dict[str, float]
    """Metric -> score on the test rows."""
    best_step: int = 0
    steps: int = 0
    seconds: float = 0.0
    updates_per_second: float
    digest: str = ""
    """Fingerprint of the test rows."""
    commit: str | None = None

    def problem(self) -> InvalidValueError | None:
        """A run without a test score."""
        return None if self.test else InvalidValueError("is empty", "test")


@dataclass(frozen=True, kw_only=True)
class VariantSummary(Record):
    """One variant of the loss in one setting, over its samples."""

    samples: int
    """Number of samples."""
    validation: float
    """The mean."""
    updates_per_second: float
    """The median."""
    test: dict[str, ScoreSummary]
    top3: dict[str, ScoreSummary]
    """Over the three samples with the best validation score (Gunel et al. 2021)."""


@dataclass(frozen=True, kw_only=True)
class VariantDifference(Record):
    """Second variant minus first, paired by sample."""

    metric: str
    samples: int
    """Samples that both variants have."""
    difference: float
    low: float | None
    high: float | None
    p: float | None
    """Of the paired t-test."""
    p_holm: float | None
    """``p`` after Holm's correction over settings."""
    p_ranks: float | None
    """Of Wilcoxon's signed-rank test."""


@dataclass(frozen=True, kw_only=True)
class SettingSummary(Record):
    """One setting of a study."""

    setting: str
    variants: dict[str, VariantSummary]
    difference: VariantDifference | None
    """Of the first metric; where there are two variants."""


@dataclass(frozen=True, kw_only=True)
class StudyResult(Result):
    """What a fine-tuning study writes as study.json."""

    WHAT: ClassVar[str] = "a fine-tuning study of nearfar"

    kind: Literal["finetune-study"] = "finetune-study"
    title: str
    config: dict[str, Any]
    provenance: Provenance = field(default_factory=Provenance)
    facts: list[str]
    """Sources of the rows."""
    settings: list[SettingSummary]
    chosen: list[str] | None = None
    """Setting and variant with the best mean on the validation rows, of a grid."""
    cells: list[StudyRun]

    def problem(self) -> InvalidValueError | None:
        """A study without settings or variants."""
        if not self.settings or not all(setting.variants for setting in self.settings):
            return InvalidValueError("is empty or has no variants", "settings")
        if self.chosen is not None and len(self.chosen) != 2:
            return InvalidValueError("is not a setting and a variant", "chosen")
        return None

    def to_json(self) -> str:
        """The text of study.json."""
        return json.dumps(self.to_dict(), indent=1) + "\n"

    def to_markdown(self) -> str:
        """Every variant of every setting, then the differences."""
        from nearfar.evaluation.finetune_summary import study_markdown

        return study_markdown(self)
