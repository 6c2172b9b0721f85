"""Gunel et al. 2021: the settings of supcon-text; those of scl-finetune are in :mod:`nearfar.config.finetune`."""

from dataclasses import dataclass

from nearfar.config.bounds import File, Temperature
from nearfar.config.training import TrainConfig
from nearfar.methods.settings import TextColumn


@dataclass(frozen=True, kw_only=True)
class SupconTextConfig(TextColumn, TrainConfig):
    """supcon-text: supervised contrastive loss over the labels of texts (the loss of Gunel et al. 2021)."""

    data: tuple[File, ...] = ()
    """Labelled texts: files with the columns below, or trec, sst2, sst5, mr, cr, subj, mpqa."""
    label_column: str = "label"
    """Column of the labels."""
    temperature: Temperature = 0.3
    """Divides the cosines (best almost everywhere in Gunel et al. 2021)."""
