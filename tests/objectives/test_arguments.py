"""What the objectives refuse: shapes, labels and numbers that they cannot compute with."""

import inspect
import math

import pytest
import torch

from nearfar import objectives
from nearfar.types import NearfarError

# Unwrapped, because with jaxtyping checks on the annotations would raise first.
FUNCTIONS = {name: inspect.unwrap(getattr(objectives, name)) for name in objectives.__all__}
X, Y, IDS = torch.ones(4, 3), torch.zeros(4), torch.arange(4)
NONE = torch.zeros(4, dtype=torch.long)
HOT = {"temperature": 1.0}


def mask(*shape):
    return torch.ones(*shape, dtype=torch.bool)


WEIGHT = "hard_negative_weight"
TEMPERATURE = "temperature must be a positive number"
SHAPES = [
    # function, arguments of which two do not fit, settings
    ("info_nce", (X, X[:2]), {}),
    ("info_nce", (X[0], X[0]), {}),
    ("info_nce", (X, X, X[:, :2]), {}),
    ("nt_xent", (X, X[:, :2]), HOT),
    ("info_nce_directions", (X, X[:1]), {"directions": "all"}),
    ("supcon", (X, IDS[:3]), HOT),
    ("premise_scl", (X, X[:3], IDS, NONE), {}),
    ("premise_sets", (IDS, NONE), {"hypothesis_ids": IDS[:3]}),
    ("self_guided", (X, X), {**HOT, "variant": "opt3"}),
    ("self_guided", (X, torch.ones(4, 2, 3)), {**HOT, "variant": "sg"}),
    ("cosine_regression", (X, X, Y[:1]), {}),  # shapes that would broadcast
    ("regression_features", (X, X[:, :2]), {}),
    ("angle_similarity", (X, X[:1]), {}),
    ("ranknet", (Y, Y, NONE[:2]), HOT),
    ("cosent", (Y, Y[:2]), HOT),
    ("list_distillation", (X, X[:2]), HOT),
    ("score_distillation", (X, X[:2], mask(4, 3)), {}),
    ("score_distillation", (X, X, mask(4, 4)), {}),
    ("margin_mse", (Y, Y[:1]), {}),  # shapes that would broadcast
    ("vector_distillation", (X, X[:, :2]), {}),
    ("nli_softmax_features", (X, X[:, :2]), {}),
    ("masked_lm", (X, NONE[:3]), {}),
    ("not_known_positive", (IDS, IDS[:1], IDS), {}),
    ("below_positive", (X, X, X[:, :2]), {"margin": 0.1}),
    ("distinct_rows", (IDS, IDS[:3]), {}),
]
VALUES = [
    # function, arguments, settings, expected message
    ("info_nce", (X, X, X), {"mask": mask(4, 4)}, r"a bool tensor of shape \(4, 8\), .* of shape \(4, 4\)"),
    ("info_nce", (X, X), {"mask": X}, r"mask must be a bool tensor of shape \(4, 4\), not torch.float32"),
    ("nt_xent", (X, X), {**HOT, "mask": mask(8, 8)}, r"shape \(4, 4\), .* of shape \(8, 8\)"),
    ("info_nce", (X, X), {"similarity": "euclid"}, "similarity must be one of dot, cosine, not 'euclid'"),
    ("below_positive", (X, X, X), {"margin": 0.1, "similarity": "euclid"}, "similarity must be one of dot, cosine"),
    ("info_nce", (X, X), {WEIGHT: 1.0}, "4 anchors need 4 negatives, but there are none"),
    ("info_nce", (X, X, X[:3]), {WEIGHT: 1.0}, "4 anchors need 4 negatives, but there are 3"),
    ("info_nce", (X, X, X), {WEIGHT: math.nan}, "hard_negative_weight must be a finite number, not nan"),
    ("info_nce_directions", (X, X), {"directions": "up"}, "one of query_to_doc, doc_to_query, both, all, not 'up'"),
    ("info_nce_directions", (X, X, X), {"directions": "doc_to_query", WEIGHT: 1.0}, "doc_to_query has no negatives"),
    ("info_nce_directions", (X, X), {"directions": "all", WEIGHT: 1.0}, "need 4 negatives, but there are none"),
    ("premise_sets", (IDS, NONE), {"hard_negatives": "neutral"}, "one of all, contradiction, none, not 'neutral'"),
    ("premise_scl", (X, X, IDS, NONE), {"max_positives": 0}, "max_positives must be at least 1, or None for"),
    ("premise_scl", (X, X, IDS, NONE), {"false_negative_margin": math.nan}, "must be a finite number, not nan"),
    ("self_guided", (X, X), {**HOT, "variant": "opt4"}, "variant must be one of sg, opt1, opt2, opt3, not 'opt4'"),
    ("squared_distance", ([X], [X[:1]]), {}, r"\[\(4, 3\)\] and references \[\(1, 3\)\] must have the same shapes"),
    ("cosine_regression", (X, X, torch.tensor([0.5, 0, 0, math.nan])), {}, r"targets must be in -1\.\.1, as cosines"),
    *(("ranknet", (Y, Y), {"temperature": bad}, TEMPERATURE) for bad in (0.0, math.nan, math.inf)),
    ("supcon", (X, IDS), {"temperature": 9e-9}, "temperature must be at least 1e-08"),
    ("info_nce_directions", (X, X), {"directions": "all", "temperature": 0.0}, TEMPERATURE),
    ("list_distillation", (X, X), {**HOT, "teacher_temperature": math.nan}, TEMPERATURE),
    *(("cosent", (Y, Y), {**HOT, "margin": bad}, "margin must be a finite number") for bad in (-0.1, math.nan)),
    *(
        ("nli_softmax", (X, torch.tensor([0, 1, bad, 0])), {}, rf"labels must be in 0\.\.2.*found .*{bad}")
        for bad in (-100, -1, 3)
    ),
    ("premise_scl", (X, X, IDS, NONE - 1), {}, r"labels must be in 0\.\.2.*found .*-1"),
]
ROWS = [*((*row, "the shapes must be ") for row in SHAPES), *VALUES]


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_invalid_arguments_are_refused(number):
    name, arguments, settings, message = ROWS[number]
    with pytest.raises(NearfarError, match=message):
        FUNCTIONS[name](*arguments, **settings)
