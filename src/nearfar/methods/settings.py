"""Settings that methods of several papers share, each declared once. A config class inherits them.

These classes derive from ``Settings`` and not from ``TrainConfig``: a dataclass takes over all fields of its bases, so
that a second path to ``TrainConfig`` would restore the defaults that a method changes.
"""

from dataclasses import dataclass

from nearfar.config.bounds import Logit, Weight
from nearfar.config.values import Settings


@dataclass(frozen=True, kw_only=True)
class MarginSettings(Settings):
    """Methods that can leave out likely false negatives."""

    false_negative_margin: Weight | None = None
    """Leave out negatives more similar to the anchor than its (nearest) positive by more than this; by default none."""


@dataclass(frozen=True, kw_only=True)
class HardNegativeSettings(Settings):
    """Methods whose rows can have a hard negative."""

    hard_negative_weight: Logit = 0.0
    """Added to the logit of each anchor's own hard negative: log alpha of Gao et al. 2021, equation 8."""


@dataclass(frozen=True, kw_only=True)
class TextColumn(Settings):
    """Methods whose rows are single texts."""

    text_column: str = "text"
    """Column of the texts, in tables."""
