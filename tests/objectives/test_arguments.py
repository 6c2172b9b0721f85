"""What the objectives refuse: shapes, labels and numbers that they cannot compute with."""

import inspect
import math

import pytest
import torch
from torch import nn

from nearfar import objectives
from nearfar.types import NearfarError

# Unwrapped, because with jaxtyping checks on the annotations would raise first.
FUNCTIONS = {name: inspect.unwrap(getattr(objectives, name)) for name in objectives.__all__}
X, Y, IDS = torch.ones(4, 3), torch.zeros(4), torch.arange(4)
NONE = torch.zeros(4, dtype=torch.long)
HOT = {"temperature": 1.0}


def mask(*shape):
    return torch.ones(*shape, dtype=torch.bool)


MASK = {**HOT, "mask": mask(8, 8)}
WEIGHT = "hard_negative_weight"
TEMPERATURE = "temperature must be a positive number"
ROWS = [
    # function, arguments, settings, expected message
    ("info_nce", (X, X[:2]), {}, r"anchors \(4, 3\) and positives \(2, 3\) must have the same shape"),
    ("info_nce", (X[0], X[0]), {}, r"anchors \(3,\)"),
    ("info_nce", (X, X, X[:, :2]), {}, r"negatives \(4, 2\) must be \[negatives, dim\], as wide as anchors \(4, 3\)"),
    ("info_nce", (X, X, X), {"mask": mask(4, 4)}, r"a bool tensor of shape \(4, 8\), .* of shape \(4, 4\)"),
    ("info_nce", (X, X), {"mask": X}, r"mask must be a bool tensor of shape \(4, 4\), not torch.float32"),
    ("info_nce", (X, X), {"similarity": "euclid"}, "similarity must be one of dot, cosine, not 'euclid'"),
    ("info_nce", (X, X), {WEIGHT: 1.0}, "4 anchors need 4 negatives, but there are none"),
    ("info_nce", (X, X, X[:3]), {WEIGHT: 1.0}, "4 anchors need 4 negatives, but there are 3"),
    ("info_nce", (X, X, X), {WEIGHT: math.nan}, "hard_negative_weight must be a finite number, not nan"),
    ("info_nce", (X, X, X), {WEIGHT: -math.inf}, "hard_negative_weight must be a finite number"),
    ("nt_xent", (X, X[:, :2]), HOT, r"first \(4, 3\) and second \(4, 2\) must have the same shape"),
    ("nt_xent", (X, X), MASK, r"shape \(4, 4\), .* of shape \(8, 8\)"),
    ("info_nce_directions", (X, X), {"directions": "up"}, "one of query_to_doc, doc_to_query, both, all, not 'up'"),
    ("info_nce_directions", (X, X, X), {"directions": "doc_to_query", WEIGHT: 1.0}, "doc_to_query has no negatives"),
    ("info_nce_directions", (X, X[:1]), {"directions": "all"}, "must have the same shape"),
    ("info_nce_directions", (X, X), {"directions": "all", WEIGHT: 1.0}, "need 4 negatives, but there are none"),
    ("info_nce_directions", (X, X), {"directions": "all", "temperature": 0.0}, TEMPERATURE),
    ("supcon", (X, IDS[:3]), HOT, r"embeddings \(4, 3\) .* one label each, but labels are \(3,\)"),
    ("supcon", (torch.ones(4, 2, 3), IDS), HOT, r"embeddings \(4, 2, 3\) must be \[batch, dim\]"),
    ("premise_scl", (X, X[:3], IDS, NONE), {}, r"premises \(4, 3\) and hypotheses \(3, 3\)"),
    ("premise_scl", (X, X, IDS, NONE[:3]), {}, r"labels \(3,\)"),
    ("premise_scl", (X, X, IDS, NONE), {"similarity": "euclid"}, "similarity must be one of dot, cosine, not 'euclid'"),
    ("premise_scl", (X, X, IDS, NONE), {"max_positives": 0}, "max_positives must be at least 1, or None for"),
    ("premise_scl", (X, X, IDS, NONE), {"max_negatives": -3}, "max_negatives"),
    *(
        ("premise_scl", (X, X, IDS, NONE), {"false_negative_margin": margin}, f"finite number or None, not {margin}")
        for margin in (math.nan, math.inf)
    ),
    *(
        ("premise_scl", (X, X, IDS, torch.tensor([0, 1, label, 0])), {}, f"labels must be in 0..2 .*found .*{label}")
        for label in (-1, 3)
    ),
    ("premise_sets", (IDS, NONE), {"hard_negatives": "neutral"}, "one of all, contradiction, none, not 'neutral'"),
    ("premise_sets", (IDS[:3], NONE), {}, r"premise_ids \(3,\), labels \(4,\)"),
    ("premise_sets", (IDS, NONE), {"hypothesis_ids": IDS[:3]}, r"hypothesis_ids \(3,\)"),
    ("self_guided", (X, X), {**HOT, "variant": "opt4"}, "variant must be one of sg, opt1, opt2, opt3, not 'opt4'"),
    ("self_guided", (X, torch.ones(4, 0, 3)), {**HOT, "variant": "opt3"}, r"views \(4, 0, 3\)"),
    ("self_guided", (X, X), {**HOT, "variant": "opt3"}, r"opt3 compares cls .* with views \[batch, layers, dim\], but"),
    ("self_guided", (X, torch.ones(4, 2, 3)), {**HOT, "variant": "sg"}, r"sg .* views \[batch, dim\]"),
    ("self_guided", (X[:3], X), {**HOT, "variant": "opt1"}, "variant opt1 compares"),
    ("self_guided", (X, X), {**MASK, "variant": "opt2"}, r"mask must be a bool tensor of shape \(4, 4\)"),
    ("parameter_drift", (nn.Linear(2, 2), nn.Linear(2, 2, bias=False)), {}, "only the module has bias"),
    ("parameter_drift", (nn.Linear(2, 2, bias=False), nn.Linear(2, 2)), {}, "only the reference has bias"),
    # shapes that would broadcast
    ("parameter_drift", (nn.Linear(3, 2), nn.Linear(1, 2)), {}, r"weight is \(2, 3\) in the module but \(2, 1\) in"),
    *(
        ("cosine_regression", (X, X, torch.tensor([0.5, 0, 0, target])), {}, r"targets must be in -1\.\.1, as cosines")
        for target in (1.01, -2.0, math.nan)
    ),
    ("cosine_regression", (X, X[:1], Y), {}, r"first \(4, 3\) and second \(1, 3\)"),
    ("cosine_regression", (X, X, Y[:1]), {}, r"targets \(1,\) must be one for each of the 4 pairs"),
    ("regression_features", (X, X[:, :2]), {}, r"first \(4, 3\) and second \(4, 2\)"),
    ("angle_similarity", (X, X[:1]), {}, r"first \(4, 3\) and second \(1, 3\)"),
    ("ranknet", (Y, Y, NONE[:2]), HOT, r"groups \(2,\) must be one for each of the 4 scores"),
    *((name, (Y, Y[:2]), HOT, r"scores \(4,\) and targets \(2,\)") for name in ("ranknet", "cosent")),
    *(("ranknet", (Y, Y), {"temperature": bad}, TEMPERATURE) for bad in (0.0, -1.0, math.nan, math.inf)),
    *(("cosent", (Y, Y), {**HOT, "margin": bad}, "margin must be a finite number") for bad in (-0.1, math.nan)),
    ("list_distillation", (X, X[:2]), HOT, r"students \(4, 3\) and teachers \(2, 3\) must be"),
    ("list_distillation", (X, X), {**HOT, "teacher_temperature": math.nan}, TEMPERATURE),
    ("vector_distillation", (X, X[:, :2]), {}, r"students \(4, 3\) and teachers \(4, 2\) must have the same shape"),
    ("nli_softmax_features", (X, X[:, :2]), {}, "same shape"),
    ("nli_softmax", (X, NONE[:3]), {}, "as many rows"),
    ("masked_lm", (X, NONE[:3]), {}, r"logits \(4, 3\) must be \[masked, vocabulary\], for tokens \(3,\)"),
    *(
        (name, (X, torch.tensor([0, 1, 2, number])), {}, rf"{what} must be in 0\.\.2, found .*{number}")
        for name, what in (("nli_softmax", "labels"), ("masked_lm", "tokens"))
        for number in (-100, -1, 3)
    ),
    ("not_known_positive", (IDS, IDS[:1], IDS), {}, r"anchors \(4,\) and positives \(1,\) must have the same length"),
    ("below_positive", (X, X[:1], X), {"margin": 0.1}, r"anchors \(4, 3\) and positives \(1, 3\)"),
    ("below_positive", (X, X, X[:, :2]), {"margin": 0.1}, r"candidates \(4, 2\) must be \[candidates, dim\], as wide"),
    ("below_positive", (X, X, X), {"margin": 0.1, "similarity": "euclid"}, "one of dot, cosine, not 'euclid'"),
    *(
        ("below_positive", (X, X, X), {"margin": margin}, f"margin must be a finite number, not {margin}")
        for margin in (math.nan, math.inf)
    ),
    ("distinct_rows", (), {}, r"ids must be one or more columns of the same length, not \[\]"),
    ("distinct_rows", (IDS, IDS[:3]), {}, r"not \[\(4,\), \(3,\)\]"),
]


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_invalid_arguments_are_refused(number):
    name, arguments, settings, message = ROWS[number]
    with pytest.raises(NearfarError, match=message):
        FUNCTIONS[name](*arguments, **settings)
