"""sg, sg-opt1, sg-opt2, sg-opt, bt, bt+sg-opt: losses by loops over vectors, gradients, draws, rows."""

import copy

import pytest
import torch

from nearfar.registry import METHODS
from nearfar.types import NearfarError
from tests import reference_objectives as references
from tests.methods.table_encoder import assert_same_gradients, built_on, cosine

SENTENCES = [("A dog runs.",), ("Two men sing.",), ("A cat waits.",), ("A dog runs.",), ("It rains.",)]
PAIRS = [
    ("A dog runs.", "A dog is running."),
    ("Two men sing.", "Two men are singing."),
    ("A cat waits.", "A cat waits."),  # the back-translation equals the sentence
    ("The cat is waiting.", "A cat waits."),
    ("It rains.", "It is raining."),
]
ROWS = {**dict.fromkeys(("sg", "sg-opt1", "sg-opt2", "sg-opt"), SENTENCES), "bt": PAIRS, "bt+sg-opt": PAIRS}
"""Method -> rows; the last one has the formula of sg-opt."""


class Built:
    """A method on a copy of the tiny encoder, its only batch, and random vectors in place of encoded texts."""

    def __init__(self, start, name, rows=None, **settings):
        torch.manual_seed(0)
        self.rows = ROWS[name] if rows is None else rows
        self.encoder = copy.deepcopy(start)
        config = METHODS[name](output="x", **{"projection": 8, "temperature": 0.3, "drift_weight": 0.0} | settings)
        self.method = built_on(config, self.encoder, self.rows)
        if self.method.head is not None:
            self.method.head.double()
        (self.batch,) = self.method.batches.epoch(0)
        self.in_order = [self.rows[row] for row in self.batch.rows]
        self.layers = 1 if name == "bt" else 1 + self.encoder.backbone.config.num_hidden_layers
        shape = (len(self.in_order), 1 + self.layers, self.encoder.dim)
        self.vectors = torch.randn(shape, dtype=torch.float64, requires_grad=True)

    def loss(self, seed=3):
        torch.manual_seed(seed)
        return self.method.loss_fn(self.batch, self.vectors)

    def drawn_layers(self, seed=3):
        torch.manual_seed(seed)
        return torch.randint(self.layers, (len(self.rows),)).tolist()

    def projected(self, vectors):
        return vectors if self.method.head is None else self.method.head(vectors)

    @property
    def weights(self):
        return [self.vectors, *(self.method.head.parameters() if self.method.head else ())]


LOOPS = {"sg": references.nt_xent, "sg-opt1": references.sg_opt1, "sg-opt2": references.sg_opt2}
LOOPS["bt"] = LOOPS["sg"]


def contrast_by_hand(built, name, near=lambda i, j: False):
    """Mean over the anchors by the formulas of Kim et al. 2021, section 3.2, without rows that share a text."""
    rows, layers = built.in_order, built.drawn_layers()
    guiding = built.vectors[:, 1:] if name == "bt" else built.vectors[:, 1:].detach()
    cls, views = built.projected(built.vectors[:, 0]), built.projected(guiding)
    mask = [
        [not set(row) & set(other) and not near(i, j) for j, other in enumerate(rows)] for i, row in enumerate(rows)
    ]
    if name not in LOOPS:
        return references.sg_opt3(cls, views, 0.3, torch.tensor(mask)).mean()
    return LOOPS[name](cls, views[range(len(rows)), layers], 0.3, torch.tensor(mask)).mean()


@pytest.mark.long
@pytest.mark.parametrize("projection", [8, "none"])
@pytest.mark.parametrize("name", ROWS)
def test_self_guided_by_hand_in_value_and_gradient(start, name, projection):
    built = Built(start, name, projection=projection)
    loss, expected = built.loss(), contrast_by_hand(built, name)
    assert (built.method.head is None) is (projection == "none")
    assert loss.terms.keys() == {name.removeprefix("bt+"), "drift"}
    torch.testing.assert_close(loss.terms[name.removeprefix("bt+")], expected.detach())
    assert not any(term.requires_grad for term in loss.terms.values())
    assert_same_gradients(loss.value, expected, built.weights)
    (gradient,) = torch.autograd.grad(built.loss().value, [built.vectors])
    assert (gradient[:, 1:] == 0).all() == (name != "bt")  # views of the copy get none; the head does through them


@pytest.mark.parametrize("freeze", [True, False])
def test_the_drift_is_the_squared_distance_of_the_trained_weights(start, freeze):
    built = Built(start, "sg-opt", drift_weight=0.2, freeze_embeddings=freeze)
    assert built.loss().penalty == 0
    expected = 0.0
    with torch.no_grad():
        for name, weight in built.encoder.backbone.named_parameters():
            weight.add_(0.01)
            assert not (name.startswith("embeddings.") and weight.requires_grad is freeze)
            expected += 1e-4 * weight.numel() * weight.requires_grad
    loss = built.loss()
    assert loss.terms["drift"].item() == pytest.approx(expected, rel=1e-4)
    assert loss.penalty.item() == pytest.approx(0.2 * expected, rel=1e-4)
    assert loss.total == loss.value + loss.penalty


def test_sg_opt_draws_no_random_numbers_and_all_layers_are_drawn_equally_often(start):
    built = Built(start, "sg-opt")
    state = torch.get_rng_state()
    built.method.loss_fn(built.batch, built.vectors)
    built.method.represent(built.method.extract_items(built.batch))
    assert torch.equal(state, torch.get_rng_state())
    rows = [(f"sentence {n}",) for n in range(400)]
    built = Built(start, "sg-opt2", rows, projection="none", temperature=0.02)
    layers = built.drawn_layers()
    assert all(abs(layers.count(layer) - 400 / built.layers) < 45 for layer in range(built.layers))
    with torch.no_grad():  # the view of a row equals its own vector at the layer drawn for it, elsewhere a common one
        built.vectors[:, 1:] = torch.randn(built.encoder.dim, dtype=torch.float64)
        built.vectors[range(400), [1 + layer for layer in layers]] = built.vectors[:, 0]
    assert built.loss(3).value < 0.5 * built.loss(4).value


@pytest.mark.parametrize("margin", [0.0, 0.1])
@pytest.mark.parametrize("name", ["sg", "sg-opt1", "sg-opt2", "sg-opt", "bt"])
def test_the_margin_excludes_rows_with_too_similar_views(start, name, margin):
    built = Built(start, name, false_negative_margin=margin)
    layers, rows = built.drawn_layers(), [set(row) for row in built.in_order]
    cls, views = built.projected(built.vectors[:, 0]), built.projected(built.vectors[:, 1:])

    def mean_cosine(i, j):
        used = [layers[j]] if name in LOOPS else range(built.layers)
        cosines = [cosine(cls[i], views[j, layer]).item() for layer in used]
        return sum(cosines) / len(cosines)

    def near(i, j):
        return mean_cosine(i, j) > mean_cosine(i, i) + margin

    known = [(i, j) for i in range(5) for j in range(5) if not rows[i] & rows[j]]
    left_out = sum(near(i, j) for i, j in known)
    assert 0 < left_out < len(known)
    loss = built.loss()
    assert loss.terms["left_out"].item() == pytest.approx(left_out / len(known))
    torch.testing.assert_close(loss.value, contrast_by_hand(built, name, near))


# --- settings and rows ---


def test_what_is_refused(start):
    with pytest.raises(NearfarError, match="all 3 rows have the same sentence, 'x', so there is nothing to tell"):
        Built(start, "sg-opt", [("x",)] * 3)
    for name in ("bt", "bt+sg-opt"):
        with pytest.raises(NearfarError, match="all 2 rows have the same back-translation, 'x'"):
            Built(start, name, [("a", "x"), ("b", "x")])
