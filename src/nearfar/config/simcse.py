"""The methods of Gao et al. 2021; each default is the paper's."""

from dataclasses import dataclass
from typing import Literal

from nearfar.config.bounds import (
    Count,
    Epochs,
    File,
    Fraction,
    LearningRate,
    Length,
    Logit,
    OpenFraction,
    Positive,
    Steps,
    Weight,
)
from nearfar.config.training import TrainConfig


@dataclass(frozen=True, kw_only=True)
class SimcseConfig(TrainConfig):
    """What both methods of Gao et al. 2021 have."""

    data: tuple[File, ...] = ()
    """What is read."""
    pooling: str | None = "cls"
    """cls, mean, mean_without_cls, max, first_last, layer:K or layer:K:max; 'own' for the model's own."""
    mlp: Literal["train_only", "kept", "none"] = "train_only"
    """A tanh layer on the embedding: in training only (best in Gao et al. 2021), also after, or not at all."""
    temperature: Positive = 0.05
    """Divides the cosines (Gao et al. 2021, table D.1)."""
    false_negative_margin: Weight | None = None
    """Leave out negatives more similar to the anchor than its positive by more than this; by default none."""
    mlm_weight: Weight = 0.0
    """Weight of a masked-language-model loss on the same sentences; 0.1 in the paper's ablation."""
    mlm_probability: OpenFraction = 0.15
    """Share of the tokens that it masks."""
    learning_rate: LearningRate = 3e-5
    """Peak of the learning rate (BERT-base; Gao et al. 2021, appendix A)."""
    warmup: Fraction = 0.0
    """Share of the steps over which the learning rate rises."""
    train_max_length: Length | None = 32
    """Tokens kept of a sentence in training only (the authors' script)."""
    evaluate_every: Steps = 250
    """Steps between evaluations (the paper; its script has 125); the last step is always evaluated."""


@dataclass(frozen=True, kw_only=True)
class SimcseUnsupConfig(SimcseConfig):
    """simcse-unsup: a sentence's positive is itself under other dropout, the batch its negatives (Gao et al. 2021)."""

    data: tuple[File, ...] = ("wiki1m",)
    """Sentences: text files with one a line, tables, or wiki1m, wiki, sentences, stsb-text, microworld."""
    text_column: str = "text"
    """Column of the sentences, in tables."""


@dataclass(frozen=True, kw_only=True)
class SimcseSupConfig(SimcseConfig):
    """simcse-sup: entailment pulled near, its contradiction a hard negative for the whole batch (Gao et al. 2021)."""

    data: tuple[File, ...] = ("snli+mnli",)
    """NLI rows, to build triplets of, or files of triplets (anchor, positive, negative or sent0, sent1, hard_neg)."""
    mlp: Literal["train_only", "kept", "none"] = "kept"
    """A tanh layer on the embedding: also after training, in training only, or not at all."""
    hard_negative_weight: Logit = 0.0
    """Added to the logit of each anchor's own hard negative: log alpha (Gao et al. 2021, equation 8)."""
    batch_size: Count = 512
    """Rows in a batch, of each process where there are several; the default shrinks to the rows there are."""
    epochs: Epochs = 3
    """Passes over the rows."""
    learning_rate: LearningRate = 5e-5
    """Peak of the learning rate (BERT-base; Gao et al. 2021, appendix A)."""
