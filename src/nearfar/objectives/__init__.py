"""Vectors -> per-anchor losses: pure functions of tensors, without a model and without distribution.

Each returns one loss per pair or per anchor. The caller takes the mean, because only the caller knows the global batch
(several processes, several micro-batches).
"""

from nearfar.objectives._contrast import RowMask, by_rows
from nearfar.objectives._info_nce import DirectionMasks, Directions, direction_masks, info_nce, info_nce_directions
from nearfar.objectives._masks import below_positive, distinct_rows, masked_fraction, not_known_positive
from nearfar.objectives._premise_scl import HardNegatives, PremiseSets, premise_scl, premise_sets
from nearfar.objectives._self_guided import nt_xent, self_guided, squared_distance
from nearfar.objectives._similarity import Similarity, l2_normalize, row_similarities, similarities
from nearfar.objectives._supcon import supcon
from nearfar.objectives._targets import (
    angle_similarity,
    cosent,
    cosine_regression,
    list_distillation,
    margin_mse,
    masked_lm,
    nli_softmax,
    nli_softmax_features,
    ranknet,
    regression_features,
    score_distillation,
    vector_distillation,
)
from nearfar.runtime.gpu import to_device as to_device
from nearfar.types import SelfGuidedVariant

__all__ = ["DirectionMasks", "Directions", "HardNegatives", "PremiseSets", "RowMask", "SelfGuidedVariant"]
__all__ += ["Similarity", "angle_similarity", "below_positive", "by_rows", "cosent", "cosine_regression"]
__all__ += ["direction_masks", "distinct_rows", "info_nce", "info_nce_directions", "l2_normalize"]
__all__ += ["list_distillation", "margin_mse", "masked_fraction", "masked_lm", "nli_softmax"]
__all__ += ["nli_softmax_features", "not_known_positive", "nt_xent", "premise_scl"]
__all__ += ["premise_sets", "ranknet", "regression_features", "row_similarities", "score_distillation"]
__all__ += ["self_guided", "similarities", "squared_distance", "supcon", "vector_distillation"]
