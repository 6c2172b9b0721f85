"""Properties of all cosine objectives: invariances, precision, and finite values."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.objectives import (
    DirectionMasks,
    cosine_regression,
    info_nce,
    info_nce_directions,
    nt_xent,
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
    "cosine_regression": lambda x, y, t: cosine_regression(x[:, 0], x[:, 1], y / 4.0),
}
objectives = pytest.mark.parametrize("name", OBJECTIVES)
names = st.sampled_from(sorted(OBJECTIVES))
counts, seeds = st.integers(2, 9), st.integers(0, 10_000)


def batch(count, seed=0, dim=5):
    labels = torch.randint(3, (count,), generator=torch.Generator().manual_seed(seed))
    return vectors(count, 3, dim, seed=seed), labels


@pytest.mark.long
@given(names, counts, seeds)
@settings(max_examples=60, deadline=None)
def test_permuting_the_batch_changes_nothing(name, count, seed):
    x, labels = batch(count, seed)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    permuted = OBJECTIVES[name](x[order], labels[order], 0.3)
    torch.testing.assert_close(permuted.sort().values, OBJECTIVES[name](x, labels, 0.3).sort().values)


@pytest.mark.long
@given(names, counts, seeds)
@settings(max_examples=60, deadline=None)
def test_rotating_all_vectors_changes_nothing(name, count, seed):
    x, labels = batch(count, seed)
    rotation = torch.linalg.qr(vectors(5, 5, seed=seed + 1)).Q
    torch.testing.assert_close(OBJECTIVES[name](x @ rotation, labels, 0.3), OBJECTIVES[name](x, labels, 0.3))


@pytest.mark.long
@given(names, counts, seeds, st.floats(1e-3, 1e3))
@settings(max_examples=60, deadline=None)
def test_scaling_any_one_vector_changes_nothing(name, count, seed, scale):
    x, labels = batch(count, seed)
    scaled = x.clone()
    scaled[seed % count, seed % 3] *= scale
    torch.testing.assert_close(OBJECTIVES[name](scaled, labels, 0.3), OBJECTIVES[name](x, labels, 0.3))


@objectives
def test_every_vector_affects_the_loss(name):
    # Otherwise a constant loss would pass the tests above.
    x, labels = batch(7)
    x.requires_grad_()
    OBJECTIVES[name](x, labels, 0.3).sum().backward()
    assert x.grad.norm(dim=2)[:, 0].min() > 0


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
@pytest.mark.parametrize("temperature", [1e-4, 1.0])
@pytest.mark.parametrize("kind", ["sharp", "huge", "tiny", "zero", "one zero", "duplicates", "opposite"])
def test_extreme_vectors_give_finite_values_and_gradients(name, kind, temperature):
    x, labels = batch(7)
    x = x.float()
    if kind == "huge":
        x = 1e15 * x
    elif kind == "tiny":
        x = 1e-30 * x
    elif kind == "zero":
        x = 0 * x
    elif kind == "one zero":
        x[0, 0], x[1, 1], x[2, 2] = 0, 0, 0
    elif kind == "duplicates":
        x = x[:1, :1].repeat(7, 3, 1)
    elif kind == "opposite":
        x[:, 1:] = -x[:, :1]
    x.requires_grad_()
    value = OBJECTIVES[name](x, labels, temperature)
    assert value.isfinite().all()
    assert len(value) >= 4
    expected = OBJECTIVES[name](x.detach().double(), labels, temperature)
    if kind != "tiny":  # their lengths are 0 in float32
        # A cosine has seven digits, and a logit is up to 1e4 times as large.
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-6 / temperature)
    value.sum().backward()
    assert x.grad.isfinite().all()


@objectives
def test_a_zero_vector_has_no_gradient(name):
    x, labels = batch(7)
    x[3, 0] = 0
    x.requires_grad_()
    OBJECTIVES[name](x, labels, 0.3).sum().backward()
    assert x.grad[3, 0].tolist() == [0] * 5
    assert x.grad[:3, 0].abs().amax(dim=1).min() > 0
