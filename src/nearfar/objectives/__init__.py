"""Vectors -> per-anchor losses: pure functions of tensors, without a model and without distribution.

Each returns one loss per pair or per anchor. The caller takes the mean, because only the caller knows the global batch
(several processes, several micro-batches).
"""

from nearfar.objectives._candidate_masks import (
    RowMask,
    all_row_masks,
    below_positive,
    below_positive_row_mask,
    distinct_row_mask,
    distinct_rows,
    masked_fraction,
    not_known_positive_row_mask,
)
from nearfar.objectives._contrast_targets import fits_in_one_block, row_blocks
from nearfar.objectives._distillation import list_distillation, vector_distillation
from nearfar.objectives._info_nce import info_nce, nt_xent
from nearfar.objectives._info_nce_directions import (
    DirectionMasks,
    Directions,
    direction_masks,
    info_nce_directions,
)
from nearfar.objectives._masked_lm import masked_lm
from nearfar.objectives._nli_softmax import nli_softmax, nli_softmax_features
from nearfar.objectives._on_device import masks_on_device, rows_on_device
from nearfar.objectives._parameter_drift import matching_parameters, parameter_drift, squared_distance
from nearfar.objectives._premise_scl import HardNegatives, PremiseSets, premise_scl, premise_sets
from nearfar.objectives._ranking import angle_similarity, cosent, ranknet
from nearfar.objectives._regression import cosine_regression, regression_features
from nearfar.objectives._self_guided import SelfGuidedVariant, self_guided
from nearfar.objectives._similarity import Similarity, l2_normalize, prepare_pair, row_similarities, similarities
from nearfar.objectives._supcon import supcon

__all__ = [
    "DirectionMasks",
    "Directions",
    "HardNegatives",
    "PremiseSets",
    "RowMask",
    "SelfGuidedVariant",
    "Similarity",
    "all_row_masks",
    "angle_similarity",
    "below_positive",
    "below_positive_row_mask",
    "cosent",
    "cosine_regression",
    "direction_masks",
    "distinct_row_mask",
    "distinct_rows",
    "fits_in_one_block",
    "info_nce",
    "info_nce_directions",
    "l2_normalize",
    "list_distillation",
    "masked_fraction",
    "masked_lm",
    "masks_on_device",
    "matching_parameters",
    "nli_softmax",
    "nli_softmax_features",
    "not_known_positive_row_mask",
    "nt_xent",
    "parameter_drift",
    "premise_scl",
    "premise_sets",
    "prepare_pair",
    "ranknet",
    "regression_features",
    "row_blocks",
    "row_similarities",
    "rows_on_device",
    "self_guided",
    "similarities",
    "squared_distance",
    "supcon",
    "vector_distillation",
]
