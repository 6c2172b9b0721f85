"""Kim et al. 2021: the settings of sg, sg-opt1, sg-opt2, sg-opt, bt and bt+sg-opt; each default is the paper's."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from nearfar.config.bounds import BelowOne, Count, File, LearningRate, Length, Steps, Temperature, Weight, Width
from nearfar.config.training import TrainConfig
from nearfar.config.values import Settings
from nearfar.methods.settings import MarginSettings, TextColumn


@dataclass(frozen=True, kw_only=True)
class KimConfig(MarginSettings, TrainConfig):
    """Settings of all methods of Kim et al. 2021."""

    pooling: str | None = "cls"
    freeze_embeddings: bool = True
    """Do not train the embedding layer (Kim et al. 2021, section 3); --no-freeze-embeddings trains it."""
    temperature: Temperature = 0.01
    """Divides the cosines (Kim et al. 2021, appendix)."""
    drift_weight: Weight = 0.1
    """Lambda: weight of the squared distance between the trained weights and the initial ones."""
    projection: Width | Literal["none"] = 4096
    """Width of the projection head, which is dropped after training; none for no head (Table 5)."""
    batch_size: Count = 16
    learning_rate: LearningRate = 5e-5
    beta2: BelowOne = 0.9
    """AdamW's second beta; the first is 0.9 (Kim et al. 2021, appendix)."""
    train_max_length: Length | None = 128
    evaluate_every: Steps = 50
    patience: Steps | None = 10


@dataclass(frozen=True, kw_only=True)
class GuidedConfig(KimConfig):
    """Settings of the methods in which a frozen copy of the encoder guides the trained one."""

    views: str = "all"
    """Layers of the frozen copy that guide: all, or first-last such as 6-12, 0 being the embedding layer."""
    view_pooling: Literal["max", "mean"] = "max"
    """Pooling of a layer into a vector: max over tokens (Kim et al. 2021, section 3), or mean (the authors' code)."""
    guide_dropout: bool = False
    """Leave the frozen copy's dropout on, as the authors' code does."""
    keep_views: bool = False
    """Compute the frozen copy's views once and reuse them in later epochs; costs memory."""


@dataclass(frozen=True, kw_only=True)
class SgConfig(TextColumn, GuidedConfig):
    """sg: NT-Xent between [CLS] and a random layer of a frozen copy (Kim et al. 2021)."""

    data: tuple[File, ...] = ("stsb-text",)
    """Sentences: text files with one a line, tables, or stsb-text (the paper's), wiki1m, wiki, microworld, vocabulary
    (texts of random words of MODEL's vocabulary)."""


@dataclass(frozen=True, kw_only=True)
class SgOpt1Config(SgConfig):
    """sg-opt1: sg with [CLS] vectors as the only anchors (Kim et al. 2021, first refinement)."""

    recipe_batch_size: ClassVar[int | None] = 64


@dataclass(frozen=True, kw_only=True)
class SgOpt2Config(SgConfig):
    """sg-opt2: sg-opt1 without [CLS] vectors as each other's negatives (Kim et al. 2021, second refinement)."""


@dataclass(frozen=True, kw_only=True)
class SgOptConfig(SgConfig):
    """sg-opt: sg-opt2 with all layers of the frozen copy as positives (Kim et al. 2021, SG-OPT)."""


@dataclass(frozen=True, kw_only=True)
class TranslationRows(Settings):
    """Methods that train on sentences and their back-translations."""

    data: tuple[File, ...] = ()
    """Files with a sentence and its back-translation, as nearfar back-translate makes them; or flickr8k, microworld."""
    sentence_column: str = "sentence"
    """Column of the sentences."""
    translation_column: str = "translation"
    """Column of their back-translations."""


@dataclass(frozen=True, kw_only=True)
class BtConfig(TranslationRows, KimConfig):
    """bt: NT-Xent between a sentence and its back-translation (a baseline of Kim et al. 2021)."""


@dataclass(frozen=True, kw_only=True)
class BtSgOptConfig(TranslationRows, GuidedConfig):
    """bt+sg-opt: sg-opt where the frozen copy reads the back-translation (Kim et al. 2021, section 6)."""
