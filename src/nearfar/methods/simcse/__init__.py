"""Gao et al. 2021, SimCSE: the settings of simcse-unsup, simcse-sup and info-nce; each default is the paper's."""

from dataclasses import dataclass
from typing import Literal

from nearfar.config.bounds import (
    Count,
    Epochs,
    File,
    Fraction,
    LearningRate,
    Length,
    OpenFraction,
    Steps,
    Temperature,
    Weight,
)
from nearfar.config.training import TrainConfig
from nearfar.methods.settings import DirectionSettings, HardNegativeSettings, MarginSettings, TextColumn
from nearfar.types import NearfarError


@dataclass(frozen=True, kw_only=True)
class InfoNceSettings(MarginSettings, TrainConfig):
    """Settings of all methods whose loss is InfoNCE."""

    temperature: Temperature = 0.05
    """Divides the similarities (Gao et al. 2021, table D.1)."""


@dataclass(frozen=True, kw_only=True)
class SimcseConfig(InfoNceSettings):
    """Settings of both methods of Gao et al. 2021."""

    pooling: str | None = "cls"
    mlp: Literal["train_only", "kept", "none"] = "train_only"
    """A tanh layer on the embedding: in training only (best in Gao et al. 2021), also after training, or none."""
    mlm_weight: Weight = 0.0
    """Weight of a masked-language-model loss on the same sentences; 0.1 in the paper's ablation."""
    mlm_probability: OpenFraction = 0.15
    """Share of the tokens to predict in the masked-language-model loss."""
    learning_rate: LearningRate = 3e-5
    """Peak learning rate (BERT-base; Gao et al. 2021, appendix A)."""
    warmup: Fraction = 0.0
    train_max_length: Length | None = 32
    """Maximum number of tokens in training only (the authors' script)."""
    evaluate_every: Steps = 250
    """Steps between evaluations (the paper; its script has 125); the last step is always evaluated."""


@dataclass(frozen=True, kw_only=True)
class SimcseUnsupConfig(TextColumn, SimcseConfig):
    """simcse-unsup: InfoNCE; the positive is the same sentence with another dropout mask (Gao et al. 2021)."""

    data: tuple[File, ...] = ("wiki1m",)
    """Sentences: text files with one a line, tables, or wiki1m, wiki, sentences, stsb-text, microworld."""

    def __post_init__(self) -> None:
        """Check values: without dropout each sentence would equal its positive."""
        super().__post_init__()
        if self.dropout == 0:
            raise NearfarError(
                "--dropout 0: simcse-unsup needs dropout, which makes the positive of each sentence; set one, such as "
                "--dropout 0.1."
            )


@dataclass(frozen=True, kw_only=True)
class SimcseSupConfig(DirectionSettings, HardNegativeSettings, SimcseConfig):
    """simcse-sup: InfoNCE with entailments as positives, contradictions as hard negatives (Gao et al. 2021)."""

    data: tuple[File, ...] = ("snli+mnli",)
    """NLI rows, to build triplets of, or files of triplets (anchor, positive, negative or sent0, sent1, hard_neg)."""
    mlp: Literal["train_only", "kept", "none"] = "kept"
    """A tanh layer on the embedding: also after training, in training only, or none."""
    batch_size: Count = 512
    epochs: Epochs = 3
    learning_rate: LearningRate = 5e-5
    """Peak learning rate (BERT-base; Gao et al. 2021, appendix A)."""


@dataclass(frozen=True, kw_only=True)
class InfoNceConfig(DirectionSettings, HardNegativeSettings, InfoNceSettings):
    """info-nce: InfoNCE on your own pairs or triplets, with the other rows of the batch as negatives."""

    data: tuple[File, ...] = ()
    """Files with the columns below, or flickr8k (captions of one photo), microworld."""
    anchor_column: str = "anchor"
    """Column of the anchors."""
    positive_column: str = "positive"
    """Column of the positives."""
    negative_column: str | None = None
    """Column of the hard negatives, one for each anchor and a negative of the whole batch; by default there is none."""
    similarity: Literal["cosine", "dot"] = "cosine"
    """cosine, or dot."""
