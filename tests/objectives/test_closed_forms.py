"""Objectives in closed form: single terms, batches that lack something, extreme inputs and half precision."""

from functools import partial

import pytest
import torch

from nearfar.objectives import (
    _contrast,
    angle_similarity,
    cosent,
    cosine_regression,
    info_nce,
    info_nce_directions,
    list_distillation,
    margin_mse,
    masked_lm,
    nli_softmax,
    nt_xent,
    premise_scl,
    ranknet,
    regression_features,
    score_distillation,
    self_guided,
    supcon,
    vector_distillation,
)
from tests.objectives.checks import LargestTensor, vectors

TARGETS = torch.tensor([0.2, 1.0, 0.2, 0.6, 0.0, 1.0, 0.6], dtype=torch.float64)
VARIANTS = ("sg", "opt1", "opt2", "opt3")
NEUTRAL = 1


# --- batches that lack something ---


def views(x, variant):
    return x[:, None] if variant == "opt3" else x


NONE = {
    "info_nce": info_nce,
    "nt_xent": partial(nt_xent, temperature=0.1),
    "directions": partial(info_nce_directions, directions="both"),
    "directions, negatives": lambda x, y: info_nce_directions(x, y, torch.ones(3, x.shape[1]), directions="all"),
    **{
        name: lambda x, y, name=name: self_guided(x, views(y, name), temperature=0.1, variant=name) for name in VARIANTS
    },
    "supcon": lambda x, y: supcon(x, torch.arange(len(x)), temperature=0.1),
    "premise_scl, capped": lambda x, y: premise_scl(
        x, y, torch.arange(len(x)), torch.full((len(x),), NEUTRAL), max_positives=2, max_negatives=2
    ),
    "cosine_regression": lambda x, y: cosine_regression(x, y, torch.zeros(len(x))),
    "regression_features": regression_features,
    "masked_lm": lambda x, y: masked_lm(x, torch.zeros(len(x), dtype=torch.long)),
}
"""Objectives of two matrices. Those of supcon and premise_scl have no anchor in a batch of any size."""


@pytest.mark.parametrize("name", NONE)
def test_a_batch_without_anchors_gives_an_empty_loss_with_a_graph(name):
    for count in (0, 1, 4) if name.startswith(("supcon", "premise")) else (0,):
        x = torch.randn(count, 3, requires_grad=True)
        value = NONE[name](x, torch.randn(count, 3))
        assert value.shape == ((0, 6) if name == "regression_features" else (0,))
        value.sum().backward()
        assert torch.equal(x.grad, torch.zeros(count, 3))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_sentence_with_all_others_masked_has_zero_loss(variant):
    c, h = vectors(4, 5).requires_grad_(), vectors(4, *([3] if variant == "opt3" else []), 5, seed=1).requires_grad_()
    mask = torch.zeros(4, 4, dtype=torch.bool)
    mask[1, 2] = True
    with torch.autograd.set_detect_anomaly(mode=True, check_nan=True):  # no intermediate NaN either
        value = self_guided(c, h, temperature=0.1, variant=variant, mask=mask)
        value.sum().backward()
    values = value.view(-1, 4)
    assert values[:, [0, 2, 3]].abs().max() == 0
    assert values[0, 1] > 0
    assert c.grad.isfinite().all()
    assert h.grad.isfinite().all()
    assert c.grad[[0, 3]].abs().max() == 0
    assert c.grad[1].abs().max() > 0


# --- in numbers ---


# --- blocks, extreme inputs, half precision ---


def test_lists_in_blocks_have_the_same_values_and_gradients_in_less_memory(monkeypatch):
    students, teachers = vectors(40, 4), vectors(40, 6, seed=1)
    found = []
    for limit in (2**22, 40 * 7):  # all rows at once, or 7 rows at a time
        monkeypatch.setattr(_contrast, "BLOCK", limit)
        own = students.clone().requires_grad_()
        with LargestTensor() as largest:
            losses = list_distillation(own, teachers, temperature=0.1)
            (losses * torch.arange(40)).sum().backward()
        found.append((losses.detach(), own.grad, largest.elements))
    assert found[1][2] <= 40 * 7 < found[0][2]
    torch.testing.assert_close(found[0][:2], found[1][:2])
    assert found[0][1].norm() > 1e-3


def test_rankings_in_blocks_have_the_same_comparisons_in_less_memory(monkeypatch):
    scores, groups = vectors(7), torch.tensor([3, 5, 3, 3, 5, 3, 5])
    whole = ranknet(scores, TARGETS, groups, temperature=0.1)
    for block in (1, 10, 2**40):
        monkeypatch.setattr(_contrast, "BLOCK", block)
        assert torch.equal(ranknet(scores, TARGETS, groups, temperature=0.1), whole)
    monkeypatch.setattr(_contrast, "BLOCK", 2**10)
    count = 512
    scores = vectors(count).float().requires_grad_()
    with LargestTensor() as largest:
        value = cosent(scores, torch.arange(count) % 9, temperature=0.1)
        value = value + ranknet(scores, torch.arange(count) % 3, torch.arange(count) // 3, temperature=0.1).mean()
        value.backward()
    assert largest.elements <= 4 * count < count**2
    assert scores.grad.norm() > 1e-6


HALF = {
    "nli_softmax": lambda x: nli_softmax(x, torch.arange(5)),
    "masked_lm": lambda x: masked_lm(x, torch.arange(5)),
    "ranknet": lambda x: ranknet(x[0, :7], TARGETS, temperature=0.05),
    "cosent": lambda x: cosent(x[0, :7], TARGETS, temperature=0.05),
    "angle_similarity": lambda x: angle_similarity(x[:4, :6], x[1:, :6]),
    "list_distillation": lambda x: list_distillation(x, x.flip(0), temperature=0.1),
    "score_distillation": lambda x: score_distillation(x, x.flip(0), torch.ones_like(x, dtype=torch.bool)),
    "margin_mse": lambda x: margin_mse(x[0], x[1]),
    "vector_distillation": lambda x: vector_distillation(x, x.flip(0)),
}


@pytest.mark.parametrize("name", HALF)
def test_half_precision_is_computed_in_float32(name):
    """The contrastive losses in half precision are in test_contrast.py."""
    for dtype in (torch.float16, torch.bfloat16):
        x = (30 * vectors(5, 40)).to(dtype)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = HALF[name](x)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), HALF[name](x.double()), rtol=1e-5, atol=1e-5)
