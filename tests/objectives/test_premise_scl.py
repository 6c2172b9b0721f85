"""Premise-anchored SCL: against loops and golden values, closed forms, symmetries, and extreme inputs."""

import inspect
import json
from math import exp, log

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.objectives import premise_scl, premise_sets
from nearfar.types import CONTRADICTION, ENTAILMENT, NEUTRAL, NearfarError
from tests import reference_objectives as references


def batch(count, dim=5, seed=0, scale=1.0):
    """Random pairs in float64, some premises with several entailments, the first pair an entailment."""
    generator = torch.Generator().manual_seed(seed)
    premises, hypotheses = scale * torch.randn(2, count, dim, generator=generator, dtype=torch.float64)
    premise_ids = torch.randint(1 + count // 3, (count,), generator=generator)
    labels = torch.randint(3, (count,), generator=generator)
    labels[0] = ENTAILMENT
    return premises, hypotheses, premise_ids, labels


def tensors(ids, labels):
    return torch.tensor(ids), torch.tensor(labels)


# --- values and gradients against references ---


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("count", [1, 2, 7, 12])
def test_matches_the_reference_in_value_and_gradient(count, temperature, similarity):
    premises, hypotheses, ids, labels = batch(count, scale=0.5)
    ours = [tensor.clone().requires_grad_() for tensor in (premises, hypotheses)]
    loops = [tensor.clone().requires_grad_() for tensor in (premises, hypotheses)]
    value = premise_scl(*ours, ids, labels, temperature=temperature, similarity=similarity)
    expected = torch.stack(references.premise_scl(*loops, ids, labels, temperature, similarity))
    torch.testing.assert_close(value, expected, rtol=1e-11, atol=1e-11)
    value.sum().backward()
    expected.sum().backward()
    if count > 1:
        assert all(tensor.grad.norm() > 1e-3 for tensor in loops)
    for one, other in zip(ours, loops, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-9, atol=1e-11)


def test_known_false_negatives_matches_the_reference():
    premises, hypotheses, ids, labels = batch(12)
    # Few texts, so that many hypotheses equal a premise or one another.
    texts = torch.randint(7, (12,), generator=torch.Generator().manual_seed(1))
    value = premise_scl(premises, hypotheses, ids, labels, hypothesis_ids=texts)
    expected = torch.stack(references.premise_scl(premises, hypotheses, ids, labels, 1.0, hypothesis_ids=texts))
    torch.testing.assert_close(value, expected, rtol=1e-11, atol=1e-11)
    assert (value < premise_scl(premises, hypotheses, ids, labels)).any()


@pytest.mark.parametrize(("hard_negatives", "labels_kept"), [("contradiction", (2,)), ("none", ())])
@pytest.mark.parametrize("texts", [None, 7])
def test_fewer_hard_negatives_matches_the_reference(hard_negatives, labels_kept, texts):
    premises, hypotheses, ids, labels = batch(14)
    if texts is not None:
        texts = torch.randint(texts, (14,), generator=torch.Generator().manual_seed(1))
    value = premise_scl(premises, hypotheses, ids, labels, hard_negatives=hard_negatives, hypothesis_ids=texts)
    expected = references.premise_scl(premises, hypotheses, ids, labels, 1.0, hypothesis_ids=texts, hard=labels_kept)
    torch.testing.assert_close(value, torch.stack(expected), rtol=1e-11, atol=1e-11)
    assert (value < premise_scl(premises, hypotheses, ids, labels, hypothesis_ids=texts)).any()


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_gradients_match_finite_differences(similarity):
    premises, hypotheses, ids, labels = batch(6)

    def loss(premises, hypotheses):
        return premise_scl(premises, hypotheses, ids, labels, temperature=0.7, similarity=similarity)

    assert torch.autograd.gradcheck(loss, (premises.requires_grad_(), hypotheses.requires_grad_()))


@pytest.mark.realdata
def test_gives_the_values_of_the_authors_code(nearfar_data):
    """Values stored next to the data folder: inputs, and the mean over anchors of the authors' loop."""
    path = nearfar_data.resolve().parent / "golden" / "objectives.json"
    if not path.exists():
        pytest.skip(f"no golden values at {path}")
    cases = json.loads(path.read_text())["nli_scl"]
    assert len(cases) >= 3
    for case in cases:
        premises, hypotheses = (torch.tensor(case[key], dtype=torch.float64) for key in ("premise", "hypothesis"))
        ids, labels = tensors(case["premise_id"], case["label"])
        value = premise_scl(premises, hypotheses, ids, labels, temperature=case["temperature"])
        assert value.mean().item() == pytest.approx(case["official"], rel=0, abs=1e-9)


# --- closed forms ---


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_equal_embeddings_give_log_of_the_candidates(similarity):
    _, _, ids, labels = batch(9)
    same = torch.full((9, 4), 0.5, dtype=torch.float64)
    value = premise_scl(same, same, ids, labels, similarity=similarity)
    assert value.tolist() == pytest.approx([log(9)] * int((labels == ENTAILMENT).sum()))


def test_capped_equal_embeddings_give_log_of_the_kept_candidates():
    ids, labels = tensors([0] * 4 + [1] * 5, [ENTAILMENT] * 4 + [NEUTRAL] * 5)
    same = torch.ones(9, 2)
    for positives, negatives, kept in [(2, None, 2 + 5), (None, 3, 4 + 3), (3, 1, 3 + 1), (9, 9, 9)]:
        value = premise_scl(same, same, ids, labels, max_positives=positives, max_negatives=negatives)
        assert value.tolist() == pytest.approx([log(kept)] * 4)


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_equal_positives_with_all_else_orthogonal(temperature):
    # Premise 0 entails two hypotheses equal to itself; the four others are orthogonal to it and to each other.
    ids, labels = tensors([0, 0, 0, 1, 1, 2], [0, 0, 2, 0, 1, 2])
    axes = torch.eye(8, dtype=torch.float64)
    premises, hypotheses = axes[[0, 0, 0, 1, 1, 2]], axes[[0, 0, 3, 1, 4, 5]]
    value = premise_scl(premises, hypotheses, ids, labels, temperature=temperature, similarity="cosine")
    # -log( e^(1/t) / (p e^(1/t) + n) ) = log(p + n e^(-1/t)), with p positives and n negatives
    e = exp(-1 / temperature)
    assert value.tolist() == pytest.approx([log(2 + 4 * e), log(2 + 4 * e), log(1 + 5 * e)])


def test_an_anchor_without_negatives_has_zero_loss():
    premises = torch.randn(1, 3, requires_grad=True)
    value = premise_scl(premises, torch.randn(1, 3), *tensors([0], [ENTAILMENT]))
    value.sum().backward()
    assert value.item() == 0
    assert premises.grad.abs().max() == 0


def test_temperature_divides_the_dot_product():
    premises, hypotheses, ids, labels = batch(7)
    torch.testing.assert_close(
        premise_scl(premises, hypotheses, ids, labels, temperature=0.25),
        premise_scl(4 * premises, hypotheses, ids, labels),
    )


# --- symmetries ---

seeds = st.integers(0, 10_000)
counts = st.integers(1, 10)
similarities = st.sampled_from(["dot", "cosine"])


@given(counts, seeds, similarities)
@settings(max_examples=25, deadline=None)
def test_permuting_the_pairs_permutes_the_losses(count, seed, similarity):
    premises, hypotheses, ids, labels = batch(count, seed=seed)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    value = torch.full((count,), -1.0, dtype=torch.float64)
    value[labels == ENTAILMENT] = premise_scl(premises, hypotheses, ids, labels, similarity=similarity)
    permuted = premise_scl(premises[order], hypotheses[order], ids[order], labels[order], similarity=similarity)
    torch.testing.assert_close(permuted, value[order][labels[order] == ENTAILMENT])


@given(counts, seeds, similarities)
@settings(max_examples=25, deadline=None)
def test_rotating_all_vectors_changes_nothing(count, seed, similarity):
    premises, hypotheses, ids, labels = batch(count, seed=seed)
    rotation = torch.linalg.qr(batch(5, seed=seed + 1)[0]).Q
    torch.testing.assert_close(
        premise_scl(premises @ rotation, hypotheses @ rotation, ids, labels, similarity=similarity),
        premise_scl(premises, hypotheses, ids, labels, similarity=similarity),
    )


@given(counts, seeds)
@settings(max_examples=25, deadline=None)
def test_scaling_a_vector_does_not_change_the_cosine_objective(count, seed):
    premises, hypotheses, ids, labels = batch(count, seed=seed)
    lengths = 0.1 + 10 * torch.rand(2, count, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    torch.testing.assert_close(
        premise_scl(lengths[0] * premises, lengths[1] * hypotheses, ids, labels, similarity="cosine"),
        premise_scl(premises, hypotheses, ids, labels, similarity="cosine"),
    )


@given(counts, seeds)
@settings(max_examples=25, deadline=None)
def test_renumbering_the_ids_changes_nothing(count, seed):
    premises, hypotheses, ids, labels = batch(count, seed=seed)
    texts = torch.randint(4, (count,), generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(
        premise_scl(premises, hypotheses, 1000 - 7 * ids, labels, hypothesis_ids=1000 - 7 * texts),
        premise_scl(premises, hypotheses, ids, labels, hypothesis_ids=texts),
    )


# --- known false negatives and caps ---


def test_excluding_by_ids_equals_deleting_the_pairs():
    premises, hypotheses, _, _ = batch(6)
    ids, labels = tensors([0, 0, 1, 1, 2, 2], [ENTAILMENT, NEUTRAL, NEUTRAL, CONTRADICTION, NEUTRAL, NEUTRAL])
    texts = torch.tensor([5, 6, 0, 7, 5, 8])  # pair 2's hypothesis is premise 0; pair 4's is what premise 0 entails
    keep = [0, 1, 3, 5]
    masked = premise_scl(premises, hypotheses, ids, labels, hypothesis_ids=texts)
    deleted = premise_scl(premises[keep], hypotheses[keep], ids[keep], labels[keep])
    torch.testing.assert_close(masked, deleted)
    assert masked.item() < premise_scl(premises, hypotheses, ids, labels).item()


def test_a_false_negative_has_no_gradient():
    premises, hypotheses, _, _ = batch(3)
    ids, labels = tensors([0, 1, 1], [ENTAILMENT, NEUTRAL, CONTRADICTION])
    hypotheses.requires_grad_()
    premise_scl(premises, hypotheses, ids, labels, hypothesis_ids=torch.tensor([5, 0, 6])).sum().backward()
    assert hypotheses.grad[1].abs().max() == 0
    assert hypotheses.grad[2].abs().min() > 0


def test_the_same_generator_state_gives_the_same_sample():
    premises, hypotheses, ids, labels = batch(12)

    def value(seed):
        generator = torch.Generator().manual_seed(seed)
        return premise_scl(premises, hypotheses, ids, labels, max_negatives=2, generator=generator)

    assert torch.equal(value(3), value(3))
    assert not torch.equal(value(3), value(4))


# --- precision and extremes ---


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype, similarity):
    premises, hypotheses, ids, labels = batch(12, scale=100)  # dot products beyond float16's 65504
    premises, hypotheses = premises.to(dtype).requires_grad_(), hypotheses.to(dtype)
    value = premise_scl(premises, hypotheses, ids, labels, similarity=similarity)
    expected = premise_scl(premises.double(), hypotheses.double(), ids, labels, similarity=similarity)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-4)
    value.sum().backward()
    assert premises.grad.dtype == dtype
    assert premises.grad.isfinite().all()


def test_autocast_does_not_round_the_products():
    premises, hypotheses, ids, labels = batch(12)
    premises, hypotheses = premises.float(), hypotheses.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = premise_scl(premises, hypotheses, ids, labels)
    assert torch.equal(value, premise_scl(premises, hypotheses, ids, labels))


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("kind", ["huge", "tiny", "zero", "one zero", "duplicates", "opposite"])
def test_extreme_vectors_give_finite_values_and_gradients(kind, similarity):
    premises, hypotheses, ids, labels = (tensor.clone() for tensor in batch(7))
    premises, hypotheses = premises.float(), hypotheses.float()
    if kind == "huge":
        premises, hypotheses = 1e2 * premises, 1e2 * hypotheses  # dot products near 1e4
    elif kind == "tiny":
        premises, hypotheses = 1e-30 * premises, 1e-30 * hypotheses
    elif kind == "zero":
        premises, hypotheses = 0 * premises, 0 * hypotheses
    elif kind == "one zero":
        premises[0], hypotheses[1] = 0, 0
    elif kind == "duplicates":
        premises, hypotheses = premises[:1].repeat(7, 1), premises[:1].repeat(7, 1)
    else:
        hypotheses = -premises
    premises.requires_grad_()
    hypotheses.requires_grad_()
    value = premise_scl(premises, hypotheses, ids, labels, similarity=similarity)
    value.sum().backward()
    assert value.isfinite().all()
    assert premises.grad.isfinite().all()
    assert hypotheses.grad.isfinite().all()
    expected = premise_scl(premises.double(), hypotheses.double(), ids, labels, similarity=similarity)
    if kind != "tiny" or similarity == "dot":
        torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-4)


def test_a_zero_vector_has_cosine_0_and_no_gradient():
    ids, labels = tensors([0, 1, 2], [ENTAILMENT, NEUTRAL, NEUTRAL])
    premises = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    hypotheses = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 3.0]], requires_grad=True)
    value = premise_scl(premises, hypotheses, ids, labels, similarity="cosine")
    value.sum().backward()
    assert value.item() == pytest.approx(log(1 + 2 * exp(-1)))  # both negatives have cosine 0
    assert hypotheses.grad[1].tolist() == [0, 0]
    assert hypotheses.grad[2].abs().max() > 0


@pytest.mark.parametrize("count", [0, 4])
@pytest.mark.parametrize("caps", [{}, {"max_positives": 2, "max_negatives": 2}])
def test_a_batch_without_anchors_gives_an_empty_loss_with_a_graph(count, caps):
    premises = torch.randn(count, 3, requires_grad=True)
    ids, labels = torch.arange(count), torch.full((count,), NEUTRAL)
    value = premise_scl(premises, torch.randn(count, 3), ids, labels, hypothesis_ids=ids + count, **caps)
    assert value.shape == (0,)
    value.sum().backward()
    assert torch.equal(premises.grad, torch.zeros(count, 3))


# --- invalid arguments ---


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"temperature": 0.0}, "temperature must be a positive number, not 0.0"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"similarity": "euclid"}, "similarity must be one of dot, cosine, not 'euclid'"),
        ({"max_positives": 0}, "max_positives must be at least 1, or None for all, not 0"),
        ({"max_negatives": -3}, "max_negatives"),
    ],
)
def test_invalid_settings_raise(setting, message):
    with pytest.raises(NearfarError, match=message):
        inspect.unwrap(premise_scl)(*batch(5), **setting)


def test_unknown_hard_negatives_raise():
    _, _, ids, labels = batch(5)
    with pytest.raises(NearfarError, match="hard_negatives must be one of all, contradiction, none, not 'neutral'"):
        inspect.unwrap(premise_sets)(ids, labels, hard_negatives="neutral")


@pytest.mark.parametrize("label", [-1, 3])
def test_unknown_labels_raise(label):
    premises, hypotheses, ids, labels = batch(5)
    labels[2] = label
    with pytest.raises(NearfarError, match=f"labels must be in 0..2 .*found .*{label}"):
        premise_scl(premises, hypotheses, ids, labels)


def test_mismatched_shapes_raise():
    premises, hypotheses, ids, labels = batch(5)
    # Unwrapped, because with jaxtyping checks on the annotations would raise first.
    unchecked, unchecked_sets = inspect.unwrap(premise_scl), inspect.unwrap(premise_sets)
    with pytest.raises(NearfarError, match=r"premises \(5, 5\) and hypotheses \(4, 5\)"):
        unchecked(premises, hypotheses[:4], ids, labels)
    with pytest.raises(NearfarError, match=r"labels \(4,\)"):
        unchecked(premises, hypotheses, ids, labels[:4])
    with pytest.raises(NearfarError, match=r"premise_ids \(4,\), labels \(5,\)"):
        unchecked_sets(ids[:4], labels)
    with pytest.raises(NearfarError, match=r"hypothesis_ids \(3,\)"):
        unchecked_sets(ids, labels, hypothesis_ids=ids[:3])
