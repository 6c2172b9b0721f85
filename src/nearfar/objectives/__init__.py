"""Vectors -> per-anchor losses: pure functions of tensors, without a model and without distribution.

Each returns one value per pair or per anchor; the caller takes the mean, because only the caller knows what else
belongs to it.
"""

from nearfar.objectives._premise_scl import PremiseSets, Similarity, premise_scl, premise_sets
from nearfar.objectives._softmax import nli_softmax, nli_softmax_features

__all__ = ["PremiseSets", "Similarity", "nli_softmax", "nli_softmax_features", "premise_scl", "premise_sets"]
