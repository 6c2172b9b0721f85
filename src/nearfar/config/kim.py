"""The methods of Kim et al. 2021; each default is the paper's."""

from dataclasses import dataclass
from typing import Literal

from nearfar.config.bounds import BelowOne, Count, File, LearningRate, Length, Positive, Steps, Weight, Width
from nearfar.config.training import TrainConfig


@dataclass(frozen=True, kw_only=True)
class GuidedConfig(TrainConfig):
    """What every method has that a frozen copy of the encoder guides (Kim et al. 2021)."""

    data: tuple[File, ...] = ()
    """What is read."""
    pooling: str | None = "cls"
    """cls, mean, mean_without_cls, max, first_last, layer:K or layer:K:max; 'own' for the model's own."""
    views: str = "all"
    """Layers of the frozen copy that guide: all, or first-last such as 6-12, 0 being the embedding layer."""
    view_pooling: Literal["max", "mean"] = "max"
    """How a layer becomes a vector: max over tokens (Kim et al. 2021, section 3), or mean (the authors' code)."""
    guide_dropout: bool = False
    """Leave the frozen copy's dropout on, as the authors' code does."""
    keep_views: bool = False
    """Compute the frozen copy's views once and reuse them in later epochs; costs memory."""
    freeze_embeddings: bool = True
    """Keep the embedding layer of the trained copy (Kim et al. 2021, section 3); --no-freeze-embeddings trains it."""
    temperature: Positive = 0.01
    """Divides the cosines (Kim et al. 2021, appendix)."""
    drift_weight: Weight = 0.1
    """Lambda: weight of the squared distance between the weights of the two copies."""
    projection: Width = 4096
    """Width of the projection head, which is dropped after training."""
    false_negative_margin: Weight | None = None
    """Leave out negatives more similar to the anchor than its positive by more than this; by default none."""
    batch_size: Count = 16
    """Rows in a batch, of each process where there are several; the default shrinks to the rows there are."""
    learning_rate: LearningRate = 5e-5
    """Peak of the learning rate."""
    beta2: BelowOne = 0.9
    """AdamW's second beta; the first is 0.9 (Kim et al. 2021, appendix)."""
    train_max_length: Length | None = 128
    """Tokens kept of a sentence in training only."""
    evaluate_every: Steps = 50
    """Steps between evaluations; the last step is always evaluated."""
    patience: Steps | None = 10
    """Stop after so many evaluations in a row without a new best."""


@dataclass(frozen=True, kw_only=True)
class SgConfig(GuidedConfig):
    """sg: [CLS] is pulled towards a frozen copy's layers, one drawn a sentence, by NT-Xent (Kim et al. 2021)."""

    data: tuple[File, ...] = ("stsb-text",)
    """Sentences: text files with one a line, tables, or stsb-text (the paper's), wiki1m, wiki, microworld."""
    text_column: str = "text"
    """Column of the sentences, in tables."""


@dataclass(frozen=True, kw_only=True)
class SgOpt1Config(SgConfig):
    """sg-opt1: sg with [CLS] vectors as the only anchors (Kim et al. 2021, first refinement)."""


@dataclass(frozen=True, kw_only=True)
class SgOpt2Config(SgConfig):
    """sg-opt2: sg-opt1 without [CLS] vectors as each other's negatives (Kim et al. 2021, second refinement)."""


@dataclass(frozen=True, kw_only=True)
class SgOptConfig(SgConfig):
    """sg-opt: sg-opt2 with every layer of the frozen copy as a positive, none drawn (Kim et al. 2021, SG-OPT)."""


@dataclass(frozen=True, kw_only=True)
class BtConfig(TrainConfig):
    """bt: NT-Xent between a sentence and its back-translation (a baseline of Kim et al. 2021)."""

    data: tuple[File, ...] = ()
    """Files with a sentence and its back-translation, as nearfar back-translate makes them; or flickr8k, microworld."""
    sentence_column: str = "sentence"
    """Column of the sentences."""
    translation_column: str = "translation"
    """Column of their back-translations."""
    pooling: str | None = "cls"
    """cls, mean, mean_without_cls, max, first_last, layer:K or layer:K:max; 'own' for the model's own."""
    freeze_embeddings: bool = True
    """Keep the embedding layer as it is; --no-freeze-embeddings trains it."""
    temperature: Positive = 0.01
    """Divides the cosines."""
    drift_weight: Weight = 0.1
    """Lambda: weight of the squared distance to the weights that the run starts from."""
    projection: Width = 4096
    """Width of the projection head, which is dropped after training."""
    false_negative_margin: Weight | None = None
    """Leave out negatives more similar to the anchor than its positive by more than this; by default none."""
    batch_size: Count = 16
    """Rows in a batch, of each process where there are several; the default shrinks to the rows there are."""
    learning_rate: LearningRate = 5e-5
    """Peak of the learning rate."""
    beta2: BelowOne = 0.9
    """AdamW's second beta; the first is 0.9."""
    train_max_length: Length | None = 128
    """Tokens kept of a sentence in training only."""
    evaluate_every: Steps = 50
    """Steps between evaluations; the last step is always evaluated."""
    patience: Steps | None = 10
    """Stop after so many evaluations in a row without a new best."""


@dataclass(frozen=True, kw_only=True)
class BtSgOptConfig(GuidedConfig):
    """bt+sg-opt: SG-OPT with the sentence in the trained copy, its back-translation in the frozen (Kim et al. 2021)."""

    data: tuple[File, ...] = ()
    """Files with a sentence and its back-translation, as nearfar back-translate makes them; or flickr8k, microworld."""
    sentence_column: str = "sentence"
    """Column of the sentences."""
    translation_column: str = "translation"
    """Column of their back-translations."""
