"""Every objective against mpmath, for temperatures, lengths of vectors and batch sizes at both ends."""

import mpmath
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nearfar import objectives
from tests import exact_reference as exact
from tests.objectives.checks import vectors

TEMPERATURES = (1e-8, 0.05, 1e4)
SCALES = {torch.float32: (1e-42, 1e-30, 1.0, 1e30, 1e38), torch.float64: (1e-310, 1e-200, 1e200, 1e307)}
LABELS = [0, 1, 0, 2, 1, 0]

OBJECTIVES = {
    "info_nce": lambda x, y, t: objectives.info_nce(x[:, 0], x[:, 1], temperature=t),
    "info_nce, negatives": lambda x, y, t: objectives.info_nce(*x.unbind(1), temperature=t),
    "supcon": lambda x, y, t: objectives.supcon(x[:, 0], y, temperature=t),
    "opt3": lambda x, y, t: objectives.self_guided(x[:, 0], x[:, 1:2], temperature=t, variant="opt3"),
    "list_distillation": lambda x, y, t: objectives.list_distillation(x[:, 0], x[:, 1], temperature=t),
    "cosine_regression": lambda x, y, t: objectives.cosine_regression(x[:, 0], x[:, 1], y.to(x.dtype) / 4),
}
EXACT = {
    "info_nce": lambda x, y, t: exact.info_nce(x[:, 0], x[:, 1], None, t),
    "info_nce, negatives": lambda x, y, t: exact.info_nce(*x.unbind(1), t),
    "supcon": lambda x, y, t: exact.supcon(x[:, 0], y.tolist(), t),
    "opt3": lambda x, y, t: exact.info_nce(x[:, 0], x[:, 1], None, t),
    "list_distillation": lambda x, y, t: exact.list_distillation(x[:, 0], x[:, 1], t),
    "cosine_regression": lambda x, y, t: exact.cosine_regression(x[:, 0], x[:, 1], [label / 4 for label in y.tolist()]),
}
FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def assert_exact(name: str, x: torch.Tensor, labels: torch.Tensor, temperature: float) -> None:
    """Values as mpmath's, up to the rounding of a cosine divided by the temperature; no gradient is NaN."""
    x = x.clone().requires_grad_()
    value = OBJECTIVES[name](x, labels, temperature)
    expected = EXACT[name](x, labels, temperature)
    rounding = 64 * torch.finfo(x.dtype).eps
    error = rounding / min(temperature, 1.0) if name != "cosine_regression" else rounding
    assert value.shape == (len(expected),)
    for one, other in zip(value.detach().double().tolist(), expected, strict=True):
        assert one == pytest.approx(float(other), rel=rounding, abs=error)
    value.sum().backward()
    assert x.grad is not None
    if not x.detach().abs().amax(dim=-1).lt(torch.finfo(x.dtype).tiny).any():  # the gradient is that of 1 / length
        assert not x.grad.isnan().any()


def batch(count: int, dtype: torch.dtype, kind: str = "random", seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    x = vectors(count, 3, 5, seed=seed)
    if kind == "equal":
        x = x[:1, :1].expand(count, 3, 5).clone()
    if kind == "some zero":
        x[0, 0] = 0
    return x.to(dtype), torch.tensor((LABELS * count)[:count])


@pytest.mark.parametrize(
    ("kind", "temperature"), [*(("random", t) for t in TEMPERATURES), ("equal", 0.05), ("some zero", 1e-8)]
)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_temperatures_at_both_ends(name: str, kind: str, temperature: float) -> None:
    for dtype in SCALES:
        for count in (1, 4):
            assert_exact(name, *batch(count, dtype, kind), temperature)


@pytest.mark.parametrize("scale", [(dtype, scale) for dtype, scales in SCALES.items() for scale in scales], ids=str)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_vectors_of_every_length(name: str, scale: tuple[torch.dtype, float]) -> None:
    """Also those whose squares are too large or too small for floating point, and denormal ones."""
    x, labels = batch(4, scale[0])
    x = x / x.abs().max()
    assert_exact(name, x * scale[1], labels, 0.05)
    x[1] *= scale[1]  # beside vectors of the usual length
    assert_exact(name, x, labels, 0.05)


@pytest.mark.long
@FEW
@example(values=[(0.25, 0), (-0.75, 1)], exponent=-1.375, dtype=torch.float64)  # softplus between 20 and 40
@given(
    values=st.lists(st.tuples(st.floats(-1, 1, width=32), st.integers(0, 3)), min_size=1, max_size=7),
    exponent=st.floats(-8, 4),
    dtype=st.sampled_from([*SCALES]),
)
def test_rankings(values: list[tuple[float, int]], exponent: float, dtype: torch.dtype) -> None:
    temperature = 10.0**exponent
    scores = torch.tensor([score for score, _ in values], dtype=dtype, requires_grad=True)
    targets = torch.tensor([target for _, target in values])
    plain = [mpmath.mpf(score) for score in scores.tolist()], targets.tolist(), mpmath.mpf(temperature)
    rounding = 64 * torch.finfo(dtype).eps
    losses = objectives.ranknet(scores, targets, temperature=temperature)
    together = objectives.cosent(scores, targets, temperature=temperature)
    for one, other in zip(losses.tolist(), exact.ranknet(*plain), strict=True):
        assert one == pytest.approx(float(other), rel=rounding, abs=rounding / min(temperature, 1))
    assert together.item() == pytest.approx(
        float(exact.cosent(*plain)), rel=rounding, abs=rounding / min(temperature, 1)
    )
    (losses.sum() + together).backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


@FEW
@given(
    logits=st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=2, max_size=5),
    dtype=st.sampled_from([*SCALES]),
)
def test_cross_entropy(logits: list[float], dtype: torch.dtype) -> None:
    x = torch.tensor([logits], dtype=dtype)
    for label in range(len(logits)):
        target = torch.tensor([label])
        (expected,) = exact.cross_entropy(x, [label])
        for value in (objectives.nli_softmax(x, target), objectives.masked_lm(x, target)):
            if float(expected) > torch.finfo(dtype).max:
                assert value.item() == float("inf")
            else:
                assert value.item() == pytest.approx(float(expected), rel=1e-5, abs=1e-5)
