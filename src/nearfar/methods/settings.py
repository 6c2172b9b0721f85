"""Settings that methods of several papers share, each declared once. A config class inherits them.

All but one derive from ``Settings`` and not from ``TrainConfig``: a dataclass takes over all fields of its bases, so
that a second path to ``TrainConfig`` would restore the defaults that a method changes.
"""

from dataclasses import dataclass
from typing import Literal

from nearfar.config.bounds import File, Logit, Temperature, Weight
from nearfar.config.training import TrainConfig
from nearfar.config.values import Settings


@dataclass(frozen=True, kw_only=True)
class MarginSettings(Settings):
    """Methods that can leave out likely false negatives."""

    false_negative_margin: Weight | None = None
    """Leave out negatives more similar to the anchor than its (nearest) positive by more than this; by default none."""


@dataclass(frozen=True, kw_only=True)
class InfoNceSettings(MarginSettings, TrainConfig):
    """Methods whose loss is InfoNCE."""

    temperature: Temperature = 0.05
    """Divides the similarities (Gao et al. 2021, table D.1)."""


@dataclass(frozen=True, kw_only=True)
class HardNegativeSettings(Settings):
    """Methods whose rows can have a hard negative."""

    hard_negative_weight: Logit = 0.0
    """Added to the logit of each anchor's own hard negative: log alpha of Gao et al. 2021, equation 8."""


@dataclass(frozen=True, kw_only=True)
class DirectionSettings(Settings):
    """Methods that compare anchors with documents, their positives and negatives."""

    directions: Literal["query_to_doc", "doc_to_query", "both", "all"] = "query_to_doc"
    """Candidates: documents for each anchor, anchors for each positive, both (mean of the two losses), or all (one
    softmax, also over anchors for each anchor and documents for each positive)."""
    distinct_texts: bool = False
    """No text twice in a batch, as far as possible: a row that repeats one waits for a later batch."""
    guide: File | None = None
    """Leave out negatives that are more similar to the anchor than its positive by the cosines of this frozen encoder;
    start is MODEL (GISTEmbed: Solatorio 2024). FALSE_NEGATIVE_MARGIN, by default 0, is then in these cosines."""


@dataclass(frozen=True, kw_only=True)
class TextColumn(Settings):
    """Methods whose rows are single texts."""

    # --- Rows ---

    text_column: str = "text"
    """Column of the texts, in tables."""


@dataclass(frozen=True, kw_only=True)
class PairColumns(Settings):
    """Methods whose rows are pairs or triplets."""

    # --- Rows ---

    anchor_column: str = "anchor"
    """Column of the anchors."""
    positive_column: str = "positive"
    """Column of the positives."""
    negative_column: str | None = "auto"
    """Column of the hard negatives: a text or a list of them, also in numbered columns (negative_1, ...); each makes a
    row. auto is negative or hard_neg, if it is there; none reads pairs."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are named: of anchors, positives, and perhaps negatives."""
        named = self.negative_column not in (None, "auto")
        return (self.anchor_column, self.positive_column, *([str(self.negative_column)] if named else []))


@dataclass(frozen=True, kw_only=True)
class NliSettings(Settings):
    """Methods whose rows are NLI rows."""

    # --- Rows ---

    data: tuple[File, ...] = ("snli",)
    """NLI rows: snli, mnli, snli+mnli, snli:dev+test, microworld, or files; several are joined."""
    premise_column: str = "premise"
    """Column of the premise, in files."""
    hypothesis_column: str = "hypothesis"
    """Column of the hypothesis, in files."""
    label_column: str = "label"
    """Column of the label, in files: entailment, neutral, contradiction, or 0, 1, 2."""
