"""Precision of all cosine objectives: half precision, autocast, zero vectors."""

import pytest
import torch

from nearfar.objectives import (
    DirectionMasks,
    cosine_regression,
    info_nce,
    info_nce_directions,
    nt_xent,
    premise_scl,
    self_guided,
    supcon,
)
from tests.objectives.checks import by_rows, vectors


def unequal(labels):
    return labels[:, None] != labels


# Arguments of each: x [batch, 3, dim], labels [batch], temperature. Masks depend on the labels, to permute with them.
OBJECTIVES = {
    "info_nce": lambda x, y, t: info_nce(x[:, 0], x[:, 1], temperature=t),
    "info_nce, masked": lambda x, y, t: info_nce(x[:, 0], x[:, 1], temperature=t, mask=unequal(y)),
    "info_nce, negatives": lambda x, y, t: info_nce(*x.unbind(1), temperature=t, hard_negative_weight=0.5),
    "doc_to_query": lambda x, y, t: info_nce_directions(*x.unbind(1), directions="doc_to_query", temperature=t),
    "both": lambda x, y, t: info_nce_directions(*x.unbind(1), directions="both", temperature=t),
    "all": lambda x, y, t: info_nce_directions(*x.unbind(1), directions="all", temperature=t, hard_negative_weight=0.5),
    "all, masked": lambda x, y, t: info_nce_directions(
        x[:, 0], x[:, 1], directions="all", temperature=t, masks=DirectionMasks(*[by_rows(unequal(y))] * 4)
    ),
    "nt_xent": lambda x, y, t: nt_xent(x[:, 0], x[:, 1], temperature=t),
    "nt_xent, masked": lambda x, y, t: nt_xent(x[:, 0], x[:, 1], temperature=t, mask=unequal(y)),
    "supcon": lambda x, y, t: supcon(x[:, 0], y, temperature=t),
    "opt1": lambda x, y, t: self_guided(x[:, 0], x[:, 1], temperature=t, variant="opt1", mask=unequal(y)),
    "opt2": lambda x, y, t: self_guided(x[:, 0], x[:, 1], temperature=t, variant="opt2"),
    "opt3": lambda x, y, t: self_guided(x[:, 0], x[:, 1:], temperature=t, variant="opt3"),
    "opt3, masked": lambda x, y, t: self_guided(x[:, 0], x[:, 1:], temperature=t, variant="opt3", mask=unequal(y)),
    "premise_scl": lambda x, y, t: premise_scl(x[:, 0], x[:, 1], 0 * y, 0 * y, temperature=t, similarity="cosine"),
    "cosine_regression": lambda x, y, t: cosine_regression(x[:, 0], x[:, 1], y / 4.0),
}
objectives = pytest.mark.parametrize("name", OBJECTIVES)


def batch(count, seed=0, dim=5):
    labels = torch.randint(3, (count,), generator=torch.Generator().manual_seed(seed))
    return vectors(count, 3, dim, seed=seed), labels


@objectives
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(name, dtype):
    x, labels = batch(9)
    x = (100 * x).to(dtype).requires_grad_()  # squares beyond float16
    value = OBJECTIVES[name](x, labels, 0.05)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), OBJECTIVES[name](x.double(), labels, 0.05), rtol=1e-5, atol=1e-5)
    value.sum().backward()
    assert x.grad.dtype == dtype
    assert x.grad.isfinite().all()


@objectives
def test_autocast_does_not_round_the_products(name):
    x, labels = batch(9)
    x = x.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = OBJECTIVES[name](x, labels, 0.05)
    assert torch.equal(value, OBJECTIVES[name](x, labels, 0.05))


@objectives
def test_a_zero_vector_has_no_gradient(name):
    x, labels = batch(7)
    x[3, 0] = 0
    x.requires_grad_()
    OBJECTIVES[name](x, labels, 0.3).sum().backward()
    assert x.grad[3, 0].tolist() == [0] * 5
    assert x.grad[:3, 0].abs().amax(dim=1).min() > 0
