"""Liao 2021: the settings of sbert, scl and augment, which train on NLI rows; each default is the paper's."""

from dataclasses import dataclass
from typing import Literal

from nearfar.config.bounds import Cap, File, Fraction, Temperature
from nearfar.config.training import TrainConfig
from nearfar.methods.settings import MarginSettings, NliColumns


@dataclass(frozen=True, kw_only=True)
class SbertConfig(NliColumns, TrainConfig):
    """sbert: softmax cross-entropy over (u, v, |u - v|) on NLI rows (Reimers & Gurevych 2019, as run by Liao 2021)."""

    data: tuple[File, ...] = ("snli",)
    """NLI rows: snli, mnli, snli+mnli, snli:dev+test, microworld, or files; several are joined."""
    pooling: str | None = "mean_without_cls"
    """cls, mean, mean_without_cls (Liao 2021, section 3), max, first_last, embeddings_last, last_two, layer:K; 'own'
    for the model's own."""
    order: Literal["premise", "file", "rows"] = "premise"
    """premise: shuffled, all rows of a premise in one batch; file: not shuffled (the authors' code); rows: shuffled."""
    head_layers: Literal[1, 2] = 2
    """Linear layers of the classifier: 2 in Liao 2021 (3h, 3h/2, 3; no activation between), 1 in SBERT."""


@dataclass(frozen=True, kw_only=True)
class SclConfig(MarginSettings, SbertConfig):
    """scl: (1 - lambda) cross-entropy + lambda premise-anchored supervised contrastive loss (Liao 2021, eq. 2, 3)."""

    scl_weight: Fraction = 0.3
    """Lambda, the weight of the contrastive loss: best on STS 0.3, on transfer tasks 0.1 (Liao 2021, tables 2, 3)."""
    temperature: Temperature = 1.0
    """Divides the similarities (Liao 2021, section 4.4); with cosine, 0.05 is usual."""
    similarity: Literal["dot", "cosine"] = "dot"
    """Dot product, as in the authors' code, or cosine."""
    hard_negatives: Literal["all", "contradiction", "none"] = "all"
    """Negatives with the anchor's own premise: all not entailed (the paper), contradictions only, or none."""
    max_positives: Cap = "all"
    """Maximum number of positives of an anchor, the entailed hypotheses of its premise; or all."""
    max_negatives: Cap = "all"
    """Maximum number of negatives of an anchor, other hypotheses of the batch; or all."""


@dataclass(frozen=True, kw_only=True)
class AugmentConfig(SbertConfig):
    """augment: cross-entropy with the pairs of scl as extra rows (3p3n- and allpalln-Augment of Liao 2021)."""

    max_positives: Cap = 3
    """Maximum number of positives of an anchor, the entailed hypotheses of its premise; or all (allpalln)."""
    max_negatives: Cap = 3
    """Maximum number of negatives of an anchor, other hypotheses of the batch; or all (allpalln)."""
