"""Regression on scored pairs: its settings, those of the SimCSE review's fine-tuning on STS-B."""

from dataclasses import dataclass
from typing import Literal

from nearfar.config.bounds import Count, Epochs, File, Fraction
from nearfar.config.training import TrainConfig


@dataclass(frozen=True, kw_only=True)
class RegressionConfig(TrainConfig):
    """regression: squared error between a score and the cosine of two texts, or a linear head on them."""

    data: tuple[File, ...] = ("stsb:train",)
    """Scored pairs: stsb:train, sickr:train, or files with the columns below."""
    first_column: str = "sentence1"
    """Column of the first texts."""
    second_column: str = "sentence2"
    """Column of the second texts."""
    score_column: str = "score"
    """Column of the scores."""
    head: Literal["cosine", "linear"] = "cosine"
    """cosine, or a linear head on (|u - v|, u * v), which is dropped after training."""
    batch_size: Count = 16
    """Batch size per process (the STS-B setting of the SimCSE review); the default shrinks to the number of rows."""
    epochs: Epochs = 10
    warmup: Fraction = 0.06
    """Share of the steps in which the learning rate rises: 214 of 3,590 steps."""
