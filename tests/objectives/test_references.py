"""Every objective has the values and gradients of the plain loops of tests/reference_objectives.py, in float64."""

from functools import partial
from itertools import product

import pytest
import torch

from nearfar import objectives
from tests import reference_objectives as references
from tests.objectives.checks import assert_same, by_rows, some_mask, vectors

COUNTS, TEMPERATURES, MASKED = (1, 5), (1.0, 0.1), (False, True)
VARIANTS = {
    "sg": references.nt_xent,
    "opt1": references.sg_opt1,
    "opt2": references.sg_opt2,
    "opt3": references.sg_opt3,
}
PREMISES = torch.tensor([0, 0, 0, 1, 1, 2, 2, 3])
LABELS = torch.tensor([0, 0, 1, 0, 2, 1, 0, 1])
"""Of NLI pairs, some premises with several entailments: 0 entailment, 1 neutral, 2 contradiction."""
SCORES = torch.tensor([0.2, 1.0, 0.2, 0.6, 0.0, 1.0, 0.6], dtype=torch.float64)
"""With ties."""


def lonely(count, *masks):
    """Whether no row is compared with another: then the gradient is 0."""
    apart = ~torch.eye(count, dtype=torch.bool)
    return not any((apart if mask is None else mask & apart).any() for mask in masks)


def stacked(loops, *arguments, **settings):
    """A reference that gives a list, as one that gives a tensor."""
    return lambda *x: torch.stack(loops(*x, *arguments, **settings))


# Each yields the objective, its reference, the inputs, and whether the gradient is 0.


def of_info_nce():
    for count, masked, temperature, similarity in product(COUNTS, MASKED, TEMPERATURES, ("cosine", "dot")):
        mask = some_mask(count, count) if masked else None
        shared = {"temperature": temperature, "similarity": similarity, "mask": mask}
        loops = partial(references.info_nce, h_minus=None, **shared)
        yield partial(objectives.info_nce, **shared), loops, 0.5 * vectors(2, count, 5), lonely(count, mask)
    for count, masked, temperature, weight in product(COUNTS, MASKED, TEMPERATURES, (0.0, 1.5, -0.7)):
        mask = some_mask(count, 2 * count, seed=3) if masked else None
        ours = partial(objectives.info_nce, temperature=temperature, hard_negative_weight=weight, mask=mask)
        loops = partial(references.info_nce, temperature=temperature, log_alpha=weight, mask=mask)
        yield ours, loops, vectors(3, count, 5), False
    for number in (1, 9):
        shared = {"temperature": 0.3, "mask": some_mask(4, 4 + number)}
        inputs = (*vectors(2, 4, 5), vectors(number, 5, seed=1))
        yield partial(objectives.info_nce, **shared), partial(references.info_nce, **shared), inputs, False


def of_self_guided():
    for variant, count, temperature, masked in product(VARIANTS, COUNTS, TEMPERATURES, MASKED):
        mask = some_mask(count, count) if masked else None
        shared = {"temperature": temperature, "mask": mask}
        views = vectors(count, *([3] if variant == "opt3" else []), 5, seed=1)
        ours, loops = partial(objectives.self_guided, variant=variant, **shared), partial(VARIANTS[variant], **shared)
        yield ours, loops, (vectors(count, 5), views), lonely(count, mask)
        if variant == "sg":
            yield partial(objectives.nt_xent, **shared), loops, (vectors(count, 5), views), lonely(count, mask)


def of_supcon():
    for labels, temperature in product(([4, 4], [0, 1, 0, 2, 1, 0, 3], [0] * 7), TEMPERATURES):
        shared = {"labels": torch.tensor(labels), "temperature": temperature}
        ours, loops = partial(objectives.supcon, **shared), stacked(references.supcon, **shared)
        yield ours, loops, (vectors(len(labels), 5),), len(labels) == 2


def of_premise_scl():
    for count, temperature, similarity in product((1, 8), (1.0, 0.3), ("dot", "cosine")):
        ids, labels = PREMISES[:count], LABELS[:count]
        shared = {"temperature": temperature, "similarity": similarity}
        for margin in (None, -0.1, 0.0, 0.2):
            ours = partial(objectives.premise_scl, **shared, false_negative_margin=margin)
            loops = stacked(references.premise_scl, ids, labels, **shared, margin=margin)
            yield partial(ours, premise_ids=ids, labels=labels), loops, 0.5 * vectors(2, count, 5), count == 1
    for texts, (hard, kept) in product((None, torch.tensor([4, 1, 5, 0, 4, 6, 1, 2])), HARD.items()):
        ours = partial(objectives.premise_scl, premise_ids=PREMISES, labels=LABELS, hypothesis_ids=texts)
        loops = stacked(references.premise_scl, PREMISES, LABELS, 1.0, hypothesis_ids=texts, hard=kept)
        yield partial(ours, hard_negatives=hard), loops, vectors(2, 8, 5), False


HARD = {"all": (1, 2), "contradiction": (2,), "none": ()}


def of_rankings():
    for count, temperature, margin, grouped in product((1, 7), (1.0, 0.05), (0.0, 0.3), (False, True)):
        groups = torch.tensor([3, 3, 3, 3, 5, 5, 5][:count]) if grouped else None
        shared = {"temperature": temperature, "margin": margin}
        loops = partial(references.ranknet, y=SCORES[:count], groups=groups, **shared)
        ours = partial(objectives.ranknet, targets=SCORES[:count], groups=groups, **shared)
        # of seven, 6 comparisons in the first group, two of which are equal, and 3 in the second
        assert len(loops(vectors(count))) == (0 if count == 1 else 8 if grouped else 18)
        yield ours, (lambda s: s[:0]) if count == 1 else stacked(loops), (vectors(count),), count == 1
        loops = partial(references.cosent, y=SCORES[:count], **shared)
        ours = partial(objectives.cosent, targets=SCORES[:count], **shared)
        yield ours, lambda s, loops=loops: loops(s) + 0 * s.sum(), (vectors(count),), count == 1
    for count, dim in product(COUNTS, (1, 4, 5)):
        # scaled to length 1, the only dimension is constant
        yield objectives.angle_similarity, references.angle_similarity, vectors(2, count, dim), dim == 1


def of_pairs():
    for count in COUNTS:
        for name in ("nli_softmax_features", "regression_features"):
            yield getattr(objectives, name), getattr(references, name), vectors(2, count, 4), False
        targets = torch.linspace(-1, 1, count + 2, dtype=torch.float64)[1:-1]
        ours, loops = (partial(one.cosine_regression, targets=targets) for one in (objectives, references))
        yield ours, loops, vectors(2, count, 5), False
        classes = torch.randint(5, (count,), generator=torch.Generator().manual_seed(0))
        for name, argument in (("nli_softmax", "labels"), ("masked_lm", "tokens")):
            ours, loops = (partial(getattr(one, name), **{argument: classes}) for one in (objectives, references))
            yield ours, loops, (5 * vectors(count, 5),), False


def of_distillation():
    for count, (temperature, other) in product((2, 3, 7), ((0.05, 0.05), (0.3, 0.1), (1.0, None))):
        teachers = vectors(count, 4, seed=1)
        ours = partial(objectives.list_distillation, teachers=teachers, temperature=temperature)
        loops = partial(references.list_distillation, teachers=teachers, temperature=temperature)
        loops = partial(loops, teacher_temperature=other or temperature)
        yield partial(ours, teacher_temperature=other), loops, (vectors(count, 5),), count == 2  # a list of one other
    for count, width in product((1, 2, 7), (1, 2, 5)):
        mask = some_mask(count, width) | torch.eye(count, width, dtype=torch.bool)
        shared = {"teachers": 2 * vectors(count, width, seed=1), "mask": mask}
        ours, loops = (partial(one.score_distillation, **shared) for one in (objectives, references))
        yield ours, loops, (vectors(count, width),), bool((mask.sum(dim=1) < 2).all())  # lists of one
        ours, loops = (partial(one.margin_mse, teachers=vectors(count, seed=1)) for one in (objectives, references))
        yield ours, loops, (vectors(count),), False
    for count in (1, 2, 7):
        ours, loops = (
            partial(one.vector_distillation, teachers=vectors(count, 5, seed=1)) for one in (objectives, references)
        )
        yield ours, loops, (vectors(count, 5),), False


def of_directions(direction):
    for count, (temperature, masked, similarity) in product((1, 5), ((1.0, False, "dot"), (0.1, True, "cosine"))):
        masks = [some_mask(count, count, seed=seed) if masked else None for seed in range(4)]
        shared = {"directions": direction, "temperature": temperature, "similarity": similarity}
        ours = partial(objectives.info_nce_directions, **shared, masks=objectives.DirectionMasks(*map(by_rows, masks)))
        loops = partial(references.info_nce_directions, n=None, **shared, masks=masks)
        yield ours, loops, 0.5 * vectors(2, count, 5), lonely(count, *masks[:2])
    for count, (masked, weight) in product((1, 5), ((False, 1.5), (True, 1.5), (True, 0.0))):
        if count == 1 and masked:
            continue
        shapes = ((count, 2 * count), (count, count), (count, count), (count, 2 * count))
        masks = [some_mask(*shape, seed=seed) if masked else None for seed, shape in enumerate(shapes)]
        shared, inputs = {"directions": direction, "temperature": 0.3}, tuple(vectors(3, count, 5))
        ours = partial(objectives.info_nce_directions, **shared, masks=objectives.DirectionMasks(*map(by_rows, masks)))
        loops = partial(references.info_nce_directions, **shared, masks=masks)
        if direction == "doc_to_query":  # compares with anchors only
            ours, loops, inputs = partial(ours, negatives=inputs[2]), partial(loops, n=inputs[2]), inputs[:2]
        else:
            ours, loops = partial(ours, hard_negative_weight=weight), partial(loops, log_alpha=weight)
        yield ours, loops, inputs, direction == "doc_to_query" and count == 1


CASES = {
    **{"info_nce": of_info_nce, "self_guided": of_self_guided, "supcon": of_supcon, "premise_scl": of_premise_scl},
    **{"rankings": of_rankings, "pairs": of_pairs, "distillation": of_distillation},
    **{
        f"directions {direction}": partial(of_directions, direction)
        for direction in ("query_to_doc", "doc_to_query", "both", "all")
    },
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    for ours, loops, inputs, trivial in CASES[name]():
        try:
            assert_same(ours, loops, *inputs, trivial=trivial)
        except AssertionError as error:
            error.add_note(f"{ours} of {len(inputs[0])} rows")
            raise


def test_the_drift_of_parameters():
    """Of frozen parameters too, and in half precision without overflow; none but the trained ones are moved."""
    ours, theirs = ([vectors(2, 3, seed=seed), vectors(4, seed=seed + 1)] for seed in (0, 5))
    trained = [tensor.requires_grad_(number == 0) for number, tensor in enumerate(ours)]
    references_of = [tensor.requires_grad_() for tensor in theirs]
    value = objectives.squared_distance(trained, references_of)
    differences = [(one - other).detach() for one, other in zip(ours, theirs, strict=True)]
    torch.testing.assert_close(value.detach(), sum((x**2).sum() for x in differences))
    value.backward()
    torch.testing.assert_close(trained[0].grad, 2 * differences[0])
    assert all(tensor.grad is None for tensor in (trained[1], *references_of))
    half = torch.full((64, 64), 8.0, dtype=torch.float16, requires_grad=True)
    value = objectives.squared_distance([half], [half.detach().clone()])
    value.backward()
    assert (value.item(), half.grad.norm().item()) == (0.0, 0.0)
    value = objectives.squared_distance([half], [torch.zeros_like(half)])
    assert value.dtype == torch.float32
    assert value.item() == 64 * 64 * 64  # beyond float16
