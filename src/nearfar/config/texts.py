"""The methods for pairs, labelled texts and scored pairs of one's own."""

from dataclasses import dataclass
from typing import Literal

from nearfar.config.bounds import Count, Epochs, File, Fraction, Logit, Positive, Weight
from nearfar.config.training import TrainConfig


@dataclass(frozen=True, kw_only=True)
class InfoNceConfig(TrainConfig):
    """info-nce: pairs or triplets of your own, with the rest of the batch as negatives."""

    data: tuple[File, ...] = ()
    """Files with the columns below, or flickr8k (captions of one photo), microworld."""
    anchor_column: str = "anchor"
    """Column of the anchors."""
    positive_column: str = "positive"
    """Column of what each is pulled towards."""
    negative_column: str | None = None
    """Column of what each is pushed away from, a hard negative for the whole batch; by default there is none."""
    temperature: Positive = 0.05
    """Divides the similarities."""
    similarity: Literal["cosine", "dot"] = "cosine"
    """cosine, or dot."""
    hard_negative_weight: Logit = 0.0
    """Added to the logit of each anchor's own hard negative."""
    false_negative_margin: Weight | None = None
    """Leave out negatives more similar to the anchor than its positive by more than this; by default none."""


@dataclass(frozen=True, kw_only=True)
class SupconTextConfig(TrainConfig):
    """supcon-text: texts of one label are near, others far (the loss of Gunel et al. 2021, for sentence encoders)."""

    data: tuple[File, ...] = ()
    """Labelled texts: files with the columns below, or trec, sst2, sst5, mr, cr, subj, mpqa."""
    text_column: str = "text"
    """Column of the texts."""
    label_column: str = "label"
    """Column of the labels."""
    temperature: Positive = 0.3
    """Divides the cosines (best almost everywhere in Gunel et al. 2021)."""


@dataclass(frozen=True, kw_only=True)
class RegressionConfig(TrainConfig):
    """regression: the cosine of two texts, or a head on both, is fitted to a score."""

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
    """Rows in a batch (the STS-B setting of the SimCSE review); the default shrinks to the rows there are."""
    epochs: Epochs = 10
    """Passes over the rows."""
    warmup: Fraction = 0.06
    """Share of the steps over which the learning rate rises: 214 of 3,590 steps."""
