"""RankNet, CoSENT and AnglE's score: against loops and sentence-transformers, closed forms, extreme inputs."""

from math import exp, log

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import AnglELoss, CoSENTLoss

from nearfar.objectives import _contrast, angle_similarity, cosent, ranknet, row_similarities
from tests import reference_objectives as references
from tests.objectives.checks import LargestTensor, assert_same, vectors

counts = pytest.mark.parametrize("count", [1, 7])
temperatures = pytest.mark.parametrize("temperature", [1.0, 0.05])
margins = pytest.mark.parametrize("margin", [0.0, 0.3])


def targets(count):
    """Scores with ties."""
    return torch.tensor([0.2, 1.0, 0.2, 0.6, 0.0, 1.0, 0.6][:count], dtype=torch.float64)


# --- values and gradients against references ---


@counts
@temperatures
@margins
@pytest.mark.parametrize("grouped", [False, True])
def test_ranknet_matches_the_reference(count, temperature, margin, grouped):
    groups = torch.tensor([3, 3, 3, 3, 5, 5, 5][:count]) if grouped else None
    y = targets(count)

    def loops(s):
        found = references.ranknet(s, y, temperature, margin, groups)
        return torch.stack(found) if found else 0 * s[:0]

    assert_same(
        lambda s: ranknet(s, y, groups, temperature=temperature, margin=margin),
        loops,
        vectors(count),
        trivial=count == 1,
    )
    # 6 comparisons of the first group, in which two are equal, and 3 of the second
    assert count < 7 or len(loops(vectors(count))) == (8 if grouped else 18)


@counts
@temperatures
@margins
def test_cosent_matches_the_reference(count, temperature, margin):
    y = targets(count)
    assert_same(
        lambda s: cosent(s, y, temperature=temperature, margin=margin),
        lambda s: references.cosent(s, y, temperature, margin) + 0 * s.sum(),
        vectors(count),
        trivial=count == 1,
    )


@counts
@pytest.mark.parametrize("dim", [1, 4, 5])
def test_angle_similarity_matches_the_reference(count, dim):
    # The gradient of the only dimension is 0: scaled to length 1, it is constant.
    assert_same(angle_similarity, references.angle_similarity, *vectors(2, count, dim), trivial=dim == 1)


# --- sentence-transformers on the same vectors ---


@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_cosent_and_angle_equal_those_of_sentence_transformers(temperature):
    y = targets(7)
    for theirs, score in (
        (CoSENTLoss(None, scale=1 / temperature), lambda u, v: row_similarities(u, v, "cosine")),
        (AnglELoss(None, scale=1 / temperature), angle_similarity),
    ):
        assert_same(
            lambda u, v, score=score: cosent(score(u, v), y, temperature=temperature),
            lambda u, v, theirs=theirs: theirs.compute_loss_from_embeddings([u, v], y),
            *vectors(2, 7, 6),
        )


# --- closed forms ---


def test_scores_with_equal_targets_are_not_compared():
    scores, tied = vectors(6).requires_grad_(), torch.full((6,), 0.5)
    assert cosent(scores, tied, temperature=0.05).item() == 0
    assert ranknet(scores, tied, temperature=0.05).shape == (0,)
    (cosent(scores, tied, temperature=0.05) + ranknet(scores, tied, temperature=0.05).sum()).backward()
    assert scores.grad.tolist() == [0] * 6
    two = cosent(torch.tensor([0.3, 0.3, 0.5]), torch.tensor([0, 0, 1]), temperature=0.1)
    assert two.item() == pytest.approx(log(1 + 2 * exp(-2)))


def test_the_margin_and_the_order_in_numbers():
    scores, labels = torch.tensor([0.9, 0.5, 0.4], dtype=torch.float64), torch.tensor([2, 1, 0])
    value = ranknet(scores, labels, temperature=0.1, margin=0.2)
    expected = [log(1 + exp(x)) for x in (-2, -3, 1)]  # 1 below 0, 2 below 0, 2 below 1
    assert value.tolist() == pytest.approx(expected)
    assert cosent(scores, labels, temperature=0.1, margin=0.2).item() == pytest.approx(
        log(1 + sum(exp(x) for x in (-2, -3, 1)))
    )
    assert cosent(scores, -labels, temperature=0.1).item() == pytest.approx(log(1 + exp(4) + exp(5) + exp(1)))


@pytest.mark.parametrize("block", [1, 10, 2**40])
def test_blocks_of_ranknet_give_the_same_comparisons(block, monkeypatch):
    scores, y, groups = vectors(7), targets(7), torch.tensor([3, 5, 3, 3, 5, 3, 5])
    whole = ranknet(scores, y, groups, temperature=0.1)
    monkeypatch.setattr(_contrast, "BLOCK", block)
    assert torch.equal(ranknet(scores, y, groups, temperature=0.1), whole)


def test_memory_is_linear_in_the_number_of_pairs(monkeypatch):
    monkeypatch.setattr(_contrast, "BLOCK", 2**10)
    count = 512
    scores = vectors(count).float().requires_grad_()
    with LargestTensor() as largest:
        value = cosent(scores, torch.arange(count) % 9, temperature=0.1)
        value = value + ranknet(scores, torch.arange(count) % 3, torch.arange(count) // 3, temperature=0.1).mean()
        value.backward()
    assert largest.elements <= 4 * count < count**2
    assert scores.grad.norm() > 1e-6


# --- extreme inputs ---


@pytest.mark.parametrize("kind", ["zero", "huge", "tiny", "equal", "opposite"])
def test_extreme_vectors_have_finite_angles_and_gradients(kind):
    u, v = vectors(2, 5, 6).float()
    scale = {"zero": 0.0, "huge": 1e15, "tiny": 1e-15}.get(kind, 1.0)
    v = {"equal": u.clone(), "opposite": -u}.get(kind, scale * v).requires_grad_()
    u = (scale * u).requires_grad_()
    value = angle_similarity(u, v)
    assert value.isfinite().all()
    if kind in ("equal", "opposite"):
        assert value.tolist() == pytest.approx([1.0] * 5, abs=1e-6)
    if kind == "zero":
        assert value.tolist() == [0] * 5
    value.sum().backward()
    assert u.grad.isfinite().all()
    assert v.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    scores, y = vectors(7).to(dtype), targets(7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for loss in (ranknet, cosent):
            value = loss(scores, y, temperature=0.05)
            assert value.dtype == torch.float32
            torch.testing.assert_close(value.double(), loss(scores.double(), y, temperature=0.05), rtol=1e-5, atol=1e-5)
        u, v = vectors(2, 4, 6).to(dtype)
        angles = angle_similarity(u, v)
    assert angles.dtype == torch.float32
    torch.testing.assert_close(angles.double(), angle_similarity(u.double(), v.double()), rtol=1e-5, atol=1e-6)
