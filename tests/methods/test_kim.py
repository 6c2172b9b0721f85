"""sg, sg-opt1, sg-opt2, sg-opt, bt: losses by loops over vectors, gradients, samples, invalid inputs, descriptions."""

import math

import pytest
import torch
from torch import nn

from nearfar.data.batching import TextBatches
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.guide import Guide
from nearfar.methods.kim import VARIANT_NAMES, BtConfig, SgConfig, SgOptConfig, back_translation, self_guided
from nearfar.objectives import parameter_drift
from nearfar.types import NearfarError
from tests.methods.table_encoder import descend
from tests.tiny import save_tiny, sentences

DIM, LAYERS, WIDTH = 6, 3, 8
SENTENCES = [("A dog runs.",), ("Two men sing.",), ("A cat waits.",), ("A dog runs.",), ("It rains.",)]
PAIRS = [
    ("A dog runs.", "A dog is running."),
    ("Two men sing.", "Two men are singing."),
    ("A cat waits.", "A cat waits."),  # the back-translation equals the sentence
    ("The cat is waiting.", "A cat waits."),
    ("It rains.", "It is raining."),
]
VARIANTS = list(VARIANT_NAMES)


class Table(nn.Module):
    """A mock of an encoder: one or several vectors for each text. Records its calls."""

    def __init__(self, rows, *shape):
        super().__init__()
        texts = dict.fromkeys(text for row in rows for text in row)
        self.numbers = {text: number for number, text in enumerate(texts)}
        self.vectors = nn.Parameter(torch.randn(len(texts), *shape, dtype=torch.float64))
        self.calls = []

    def forward(self, texts):
        self.calls.append(list(texts))
        return self.vectors[[self.numbers[text] for text in texts]]


class MethodSetup:
    """A method on tables; ``frozen`` requires a gradient, so that a leaking gradient would be detected."""

    def __init__(self, rows=SENTENCES, method="self_guided", *, batch_size=None, with_drift=True, **settings):
        torch.manual_seed(0)
        self.rows = rows
        self.table, self.frozen = Table(rows, DIM), Table(rows, LAYERS, DIM)
        self.start = self.table.vectors.detach() + 0.5
        batches = TextBatches(rows, batch_size or len(rows))
        settings = {"projection": WIDTH, "head_std": 0.5, "temperature": 0.3} | settings
        structure = {name: settings.pop(name) for name in ("head_std", "variant", "views", "name") if name in settings}
        structure["drift"] = self.drift if with_drift else None
        if method == "bt":
            self.method = back_translation(BtConfig(output="x", **settings), self.table, DIM, batches, **structure)
        else:
            config = SgConfig(output="x", **settings)
            self.method = self_guided(config, self.table, self.frozen, DIM, batches, **structure)
        if self.method.head is not None:
            self.method.head.double()

    def drift(self):
        return (self.table.vectors - self.start).square().sum()

    def batch(self):
        return next(self.method.batches.epoch(0))

    def in_order(self):
        """The rows of the only batch, in batch order."""
        return [self.rows[row] for row in self.batch().rows]

    def project(self, vector):
        return vector if self.method.head is None else self.method.head(vector[None])[0]

    def trained(self, text):
        return self.project(self.table.vectors[self.table.numbers[text]])

    def view(self, text, layer):
        return self.project(self.frozen.vectors[self.frozen.numbers[text], layer].detach())


def cosine(a, b):
    return (a * b).sum() / (a.square().sum() * b.square().sum()).sqrt()


def share(anchor, positive, others, temperature):
    """-log of the softmax of the positive among itself and the others."""
    top, *rest = (torch.exp(cosine(anchor, vector) / temperature) for vector in [positive, *others])
    return -torch.log(top / (top + sum(rest)))


def expected_contrast(setting, variant, layers, near=lambda i, j: False, temperature=0.3):
    """Mean over the anchors by the formulas of Kim et al. 2021, section 3.2, without rows that share a text."""
    rows = setting.in_order()
    cls = [setting.trained(row[0]) for row in rows]
    views = [[setting.view(row[-1], layer) for layer in range(LAYERS)] for row in rows]
    drawn = [views[i][layer] for i, layer in enumerate(layers)] if layers is not None else None
    values = []
    for i, row in enumerate(rows):
        others = [j for j, other in enumerate(rows) if not set(row) & set(other) and not near(i, j)]
        if variant == "opt3":
            negatives = [view for j in others for view in views[j]]
            values += [share(cls[i], view, negatives, temperature) for view in views[i]]
            continue
        negatives = [drawn[j] for j in others] + ([cls[j] for j in others] if variant != "opt2" else [])
        values.append(share(cls[i], drawn[i], negatives, temperature))
        if variant == "sg":
            values.append(share(drawn[i], cls[i], negatives, temperature))
    return torch.stack(values).mean()


def seeded_loss(setting, seed=3):
    torch.manual_seed(seed)
    return setting.method.loss(setting.batch())


def redrawn_layers(setting, variant, seed=3):
    torch.manual_seed(seed)
    return None if variant == "opt3" else torch.randint(LAYERS, (len(setting.rows),)).tolist()


def gradients(total, setting):
    return torch.autograd.grad(total, [setting.table.vectors, *setting.method.head.parameters()])


# --- self-guided: the loss ---


@pytest.mark.parametrize("rows", [SENTENCES, PAIRS], ids=["sentences", "pairs"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_self_guided_equals_contrast_plus_drift_in_value_and_gradient(variant, rows):
    setting = MethodSetup(rows, variant=variant, drift_weight=0.2)
    loss = seeded_loss(setting)
    contrast = expected_contrast(setting, variant, redrawn_layers(setting, variant))
    expected = contrast + 0.2 * setting.drift()
    torch.testing.assert_close(loss.total, expected)
    assert set(loss.terms) == {VARIANT_NAMES[variant], "drift"}
    torch.testing.assert_close(loss.terms[VARIANT_NAMES[variant]], contrast.detach())
    torch.testing.assert_close(loss.terms["drift"], setting.drift().detach())
    assert all(term.shape == () and not term.requires_grad for term in loss.terms.values())
    assert contrast > 0.1
    ours, theirs = gradients(loss.total, setting), gradients(expected, setting)
    assert all(gradient.norm() > 1e-3 for gradient in theirs)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("variant", VARIANTS)
def test_views_get_no_gradient_and_the_head_gets_one_through_them(variant):
    setting = MethodSetup(variant=variant, drift_weight=0.0)
    seeded_loss(setting).total.backward()
    assert (setting.frozen.vectors.grad == 0).all()
    assert setting.table.vectors.grad.norm() > 1e-3
    assert all(weights.grad.norm() > 1e-3 for weights in setting.method.head.parameters())
    # The head has a gradient from the views too: with c_i detached, it is not 0.
    rows = setting.method.represent(setting.method.extract_items(setting.batch())).detach()
    direct = torch.autograd.grad(setting.method.loss_fn(setting.batch(), rows).total, setting.method.head.parameters())
    assert all(gradient.norm() > 1e-3 for gradient in direct)


@pytest.mark.parametrize("variant", ["sg", "opt1", "opt2"])
def test_each_row_draws_its_layer_from_the_global_generator(variant):
    setting = MethodSetup(variant=variant)
    assert seeded_loss(setting, 1).total == seeded_loss(setting, 1).total
    assert len({seeded_loss(setting, seed).total.item() for seed in range(6)}) > 3
    # Representations hold all layers, so that encoding draws no random numbers.
    rows = setting.method.represent(setting.method.extract_items(setting.batch()))
    assert rows.shape == (len(SENTENCES), 1 + LAYERS, DIM)
    state = torch.get_rng_state()
    setting.method.represent(setting.method.extract_items(setting.batch()))
    assert torch.equal(state, torch.get_rng_state())


def test_all_layers_are_drawn_with_equal_probability():
    setting = MethodSetup([(f"sentence {n}",) for n in range(400)], variant="opt2", temperature=0.02)
    rows = torch.zeros(400, 1 + LAYERS, DIM, dtype=torch.float64)
    layers = redrawn_layers(setting, "opt2")
    # The view of a row equals its own vector at the layer drawn for it, and a common vector at the other layers.
    rows[:, 0] = torch.randn(400, DIM, dtype=torch.float64)
    rows[:, 1:] = torch.randn(DIM, dtype=torch.float64)
    rows[range(400), [1 + layer for layer in layers]] = rows[:, 0]
    torch.manual_seed(3)
    drawn = setting.method.loss_fn(setting.batch(), rows).terms["sg-opt2"]
    torch.manual_seed(4)
    assert drawn < 0.5 * setting.method.loss_fn(setting.batch(), rows).terms["sg-opt2"]
    assert all(100 < layers.count(layer) < 170 for layer in range(LAYERS))


def test_sg_opt_draws_no_random_numbers():
    setting = MethodSetup(variant="opt3")
    state = torch.get_rng_state()
    setting.method.loss(setting.batch())
    assert torch.equal(state, torch.get_rng_state())


def test_repeated_rows_keep_their_entries_and_are_not_negatives_of_each_other():
    setting = MethodSetup()
    assert len(setting.method.extract_items(setting.batch())) == len(SENTENCES)
    setting.method.loss(setting.batch())
    assert sorted(setting.table.calls[0]) == sorted(text for (text,) in SENTENCES)
    # Vectors equal to their views have loss 0; two equal rows as negatives of each other would have log 2 each.
    rows = [("same",), ("same",), ("other",)]
    setting = MethodSetup(rows, variant="opt2", temperature=0.01)
    setting.table.vectors.data[:] = setting.frozen.vectors.data[:, 0]
    setting.frozen.vectors.data[:] = setting.table.vectors.data[:, None]
    assert setting.method.loss(setting.batch()).terms["sg-opt2"] < 0.01


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_batch_of_equal_texts_has_loss_0_and_a_gradient(variant):
    rows = [("same",)] * 2 + [(f"sentence {n}",) for n in range(8)]
    setting = MethodSetup(rows, batch_size=2, variant=variant, drift_weight=0.0)
    same = next(
        batch for epoch in range(1000) for batch in setting.method.batches.epoch(epoch) if set(batch.rows) == {0, 1}
    )
    loss = setting.method.loss(same)
    assert loss.total.item() == pytest.approx(0, abs=1e-12)
    loss.total.backward()
    assert setting.table.vectors.grad.isfinite().all()
    assert all(weights.grad.isfinite().all() for weights in setting.method.head.parameters())


def test_the_first_text_is_trained_and_the_second_is_the_guide():
    setting = MethodSetup(PAIRS)
    assert sorted(setting.method.extract_items(setting.batch())) == sorted(PAIRS)
    setting.method.loss(setting.batch())
    assert sorted(setting.table.calls[0]) == sorted(first for first, _ in PAIRS)
    assert sorted(setting.frozen.calls[0]) == sorted(second for _, second in PAIRS)


def test_half_precision_is_cast_to_float32():
    setting = MethodSetup()
    for table in (setting.table, setting.frozen):
        table.bfloat16()
    setting.method.head.float()
    assert setting.method.represent(setting.method.extract_items(setting.batch())).dtype == torch.float32
    assert setting.method.loss(setting.batch()).terms["sg-opt"].dtype == torch.float32


def test_embeddings_and_layers_of_different_widths_are_refused():
    setting = MethodSetup()
    setting.frozen.vectors = nn.Parameter(torch.randn(5, LAYERS, DIM + 1, dtype=torch.float64))
    with pytest.raises(NearfarError, match="sg-opt: the embeddings are 6 wide, but the frozen copy's layers 7"):
        setting.method.loss(setting.batch())


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_projection_head_the_loss_compares_the_vectors_themselves(variant):
    setting = MethodSetup(projection="none", variant=variant)
    assert setting.method.head is None
    loss = seeded_loss(setting)
    layers = None if variant == "opt3" else redrawn_layers(setting, variant)
    expected = expected_contrast(setting, variant, layers)
    torch.testing.assert_close(loss.terms[VARIANT_NAMES[variant]], expected.detach())
    loss.total.backward()
    assert setting.table.vectors.grad.abs().sum() > 0


def test_back_translation_without_projection_head():
    setting = MethodSetup(PAIRS, "bt", projection="none", with_drift=False)
    assert setting.method.head is None
    rows = setting.in_order()
    first, second = ([setting.trained(row[side]) for row in rows] for side in (0, 1))
    values = []
    for i, row in enumerate(rows):
        others = [j for j, other in enumerate(rows) if not set(row) & set(other)]
        negatives = [vector for j in others for vector in (first[j], second[j])]
        values += [share(first[i], second[i], negatives, 0.3), share(second[i], first[i], negatives, 0.3)]
    torch.testing.assert_close(setting.method.loss(setting.batch()).total, torch.stack(values).mean())


@pytest.mark.long
def test_an_encoder_its_frozen_copy_and_their_drift(tmp_path):
    encoder = Encoder.from_pretrained(save_tiny(tmp_path), pooling="cls", device="cpu")
    guide = Guide(encoder.backbone, encoder.route)
    rows = [(text,) for text in dict.fromkeys(sentences(8))]
    method = self_guided(
        SgOptConfig(output="x", projection=16),
        encoder.embed,
        lambda texts: guide.views(encoder.tokenize(texts).ids),
        encoder.dim,
        TextBatches(rows, len(rows)),
        drift=lambda: parameter_drift(encoder.backbone, guide.backbone),
    )
    (batch,) = method.batches.epoch(0)
    items = method.extract_items(batch)
    # A row depends only on its item, so that items can be encoded separately.
    torch.testing.assert_close(method.represent(items)[2:5], method.represent(items[2:5]))
    optimizer = torch.optim.AdamW([*encoder.parameters(), *method.head.parameters()], lr=1e-3)
    before = method.loss(batch)
    assert before.terms["drift"] == 0
    views = guide.views(encoder.tokenize([rows[0][0]]).ids)
    descend(lambda: method.loss(batch).total, optimizer, steps=3)
    after = method.loss(batch)
    assert after.terms["drift"] > 0
    assert after.terms["sg-opt"] < before.terms["sg-opt"]
    assert torch.equal(guide.views(encoder.tokenize([rows[0][0]]).ids), views)


# --- self-guided: the margin ---


@pytest.mark.parametrize("margin", [0.0, 0.1])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_margin_excludes_rows_with_too_similar_views(variant, margin):
    setting = MethodSetup(variant=variant, drift_weight=0.0, false_negative_margin=margin)
    loss = seeded_loss(setting)
    layers = redrawn_layers(setting, variant)
    texts = [row[0] for row in setting.in_order()]

    def mean_cosine(i, j):
        used = range(LAYERS) if variant == "opt3" else [layers[j]]
        cosines = [cosine(setting.trained(texts[i]), setting.view(texts[j], layer)).item() for layer in used]
        return sum(cosines) / len(cosines)

    def near(i, j):
        return mean_cosine(i, j) > mean_cosine(i, i) + margin

    known = [(i, j) for i in range(5) for j in range(5) if texts[i] != texts[j]]
    left_out = sum(near(i, j) for i, j in known)
    assert 0 < left_out < len(known)
    assert loss.terms["left_out"].item() == pytest.approx(left_out / len(known))
    torch.testing.assert_close(loss.total, expected_contrast(setting, variant, layers, near))


def test_a_wide_margin_excludes_no_row():
    plain, wide = MethodSetup(), MethodSetup(false_negative_margin=2.0)
    assert wide.method.loss(wide.batch()).terms["left_out"] == 0
    torch.testing.assert_close(wide.method.loss(wide.batch()).total, plain.method.loss(plain.batch()).total)


# --- back-translation ---


def expected_bt(setting, near=lambda i, j: False):
    rows = setting.in_order()
    values = []
    for i, row in enumerate(rows):
        others = [j for j, other in enumerate(rows) if not set(row) & set(other) and not near(i, j)]
        negatives = [setting.trained(text) for j in others for text in rows[j]]
        first, second = map(setting.trained, row)
        values += [share(first, second, negatives, 0.3), share(second, first, negatives, 0.3)]
    return torch.stack(values).mean()


@pytest.mark.parametrize("with_drift", [True, False])
def test_bt_equals_nt_xent_plus_drift_in_value_and_gradient(with_drift):
    setting = MethodSetup(PAIRS, "bt", with_drift=with_drift, drift_weight=0.2)
    loss = setting.method.loss(setting.batch())
    contrast = expected_bt(setting)
    expected = contrast + 0.2 * setting.drift() if with_drift else contrast
    torch.testing.assert_close(loss.total, expected)
    assert set(loss.terms) == ({"bt", "drift"} if with_drift else {"bt"})
    torch.testing.assert_close(loss.terms["bt"], contrast.detach())
    ours, theirs = gradients(loss.total, setting), gradients(expected, setting)
    assert all(gradient.norm() > 1e-3 for gradient in theirs)
    torch.testing.assert_close(ours, theirs)


def test_bt_encodes_each_distinct_text_once():
    setting = MethodSetup(PAIRS, "bt")
    setting.method.loss(setting.batch())
    assert [sorted(texts) for texts in setting.table.calls] == [sorted(setting.table.numbers)]
    assert setting.frozen.calls == []


def test_the_margin_of_bt_excludes_rows_with_a_too_similar_text():
    setting = MethodSetup(PAIRS, "bt", with_drift=False, false_negative_margin=0.1)
    rows = setting.in_order()
    loss = setting.method.loss(setting.batch())

    def similarity(one, other):
        return cosine(setting.trained(one), setting.trained(other)).item()

    def near(i, j):
        return any(similarity(one, other) > similarity(*rows[i]) + 0.1 for one in rows[i] for other in rows[j])

    known = [(i, j) for i in range(5) for j in range(5) if not set(rows[i]) & set(rows[j])]
    left_out = sum(near(i, j) for i, j in known)
    assert 0 < left_out < len(known)
    assert loss.terms["left_out"].item() == pytest.approx(left_out / len(known))
    torch.testing.assert_close(loss.total, expected_bt(setting, near))


# --- learning ---


@pytest.mark.long
@pytest.mark.parametrize("variant", VARIANTS)
def test_sentences_become_most_similar_to_their_views(variant):
    rows = [(f"sentence {n}",) for n in range(8)]
    setting = MethodSetup(rows, variant=variant, drift_weight=0.001, temperature=0.1)
    # Layers of one sentence are similar, as in an encoder.
    setting.frozen.vectors.data = setting.frozen.vectors.data[:, :1] + 0.1 * setting.frozen.vectors.data
    optimizer = torch.optim.Adam([setting.table.vectors, *setting.method.head.parameters()], lr=0.03)

    def num_matched():
        """Number of sentences that are most similar to their own views."""
        vectors = nn.functional.normalize(setting.method.head(setting.table.vectors), dim=-1)
        views = nn.functional.normalize(setting.method.head(setting.frozen.vectors), dim=-1).mean(dim=1)
        return ((vectors @ views.T).argmax(dim=1) == torch.arange(8)).sum()

    assert num_matched() < 5
    descend(lambda: setting.method.loss(setting.batch()).total, optimizer, steps=100)
    assert num_matched() == 8


@pytest.mark.long
def test_bt_increases_the_similarity_of_pairs():
    rows = [(f"sentence {n}", f"back {n}") for n in range(6)]
    setting = MethodSetup(rows, "bt", with_drift=False)
    before = setting.method.loss(setting.batch()).total
    optimizer = torch.optim.Adam([setting.table.vectors, *setting.method.head.parameters()], lr=0.03)
    descend(lambda: setting.method.loss(setting.batch()).total, optimizer, steps=60)
    assert setting.method.loss(setting.batch()).total < 0.2 * before
    for first, second in rows:
        similarity = {text: cosine(setting.trained(first), setting.trained(text)) for pair in rows for text in pair}
        del similarity[first]
        assert max(similarity, key=similarity.get) == second


def test_the_drift_term_limits_weight_changes():
    def distance(drift_weight):
        setting = MethodSetup(drift_weight=drift_weight)
        setting.start = setting.table.vectors.detach().clone()
        optimizer = torch.optim.SGD([setting.table.vectors], lr=0.1)
        descend(lambda: setting.method.loss(setting.batch()).total, optimizer, steps=30)
        return setting.drift().item()

    assert distance(1.0) < 0.5 * distance(0.0)


# --- invalid settings and inputs ---


@pytest.mark.parametrize(("variant", "name"), VARIANT_NAMES.items())
def test_methods_are_named_by_variant_and_columns(variant, name):
    assert MethodSetup(variant=variant).method.name == name
    assert MethodSetup(PAIRS, variant=variant).method.name == f"bt+{name}"
    assert MethodSetup(variant=variant, name=name).method.name == name
    assert MethodSetup(PAIRS, "bt").method.name == "bt"


@pytest.mark.long
def test_the_default_head_equals_that_of_the_paper():
    setting = MethodSetup(projection=SgConfig(output="x").projection, head_std=0.02)
    weights = [weight for weight in setting.method.head.parameters() if weight.ndim == 2]
    assert [tuple(weight.shape) for weight in weights] == [(4096, DIM), (4096, 4096)]
    assert weights[1].std().item() == pytest.approx(0.02, rel=0.01)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, "--temperature 0.0: must be at least 1e-08"),
        ({"temperature": math.nan}, "--temperature"),
        ({"drift_weight": -0.1}, "--drift-weight -0.1: must be at least 0"),
        ({"drift_weight": math.inf}, "--drift-weight"),
        ({"projection": 0}, "--projection 0: must be at least 1"),
        ({"projection": "no"}, "--projection 'no': must be a whole number or none"),
        ({"false_negative_margin": -0.1}, "--false-negative-margin -0.1: must be at least 0"),
    ],
)
def test_settings_out_of_range_are_refused_before_encoding(settings, message):
    for rows, method in ((SENTENCES, "self_guided"), (PAIRS, "bt")):
        with pytest.raises(NearfarError, match=message):
            MethodSetup(rows, method, **settings)


def test_an_unknown_variant_is_refused():
    with pytest.raises(NearfarError, match="variant must be one of sg, opt1, opt2, opt3, not 'opt4'"):
        MethodSetup(variant="opt4")


def test_rows_with_the_wrong_number_of_texts_are_refused():
    with pytest.raises(NearfarError, match=r"bt needs .* its back-translation .* 1 text a row; nearfar back-translate"):
        MethodSetup(SENTENCES, "bt")
    with pytest.raises(NearfarError, match=r"bt\+sg-opt needs .* 1 text a row; nearfar back-translate"):
        MethodSetup(SENTENCES, name="bt+sg-opt")
    with pytest.raises(NearfarError, match=r"sg-opt takes one sentence a row, but the data has 2 texts .* bt\+sg-opt"):
        MethodSetup(PAIRS, name="sg-opt")
    triplets = [("a", "b", "c"), ("d", "e", "f")]
    with pytest.raises(NearfarError, match="sg-opt takes one sentence a row, but the data has 3 texts"):
        MethodSetup(triplets)
    with pytest.raises(NearfarError, match=r"bt needs .* 3 texts a row"):
        MethodSetup(triplets, "bt")


def test_equal_rows_are_refused():
    with pytest.raises(NearfarError, match="all 3 rows have the same sentence, 'x', so there is nothing to push"):
        MethodSetup([("x",)] * 3)
    with pytest.raises(NearfarError, match="all 2 rows have the same back-translation, 'x'"):
        MethodSetup([("a", "x"), ("b", "x")], "bt")
    with pytest.raises(NearfarError, match="all 2 rows have the same back-translation, 'x'"):
        MethodSetup([("a", "x"), ("b", "x")])


# --- descriptions ---


def description(setting):
    (batch,) = setting.method.batches.epoch(0)
    lines = setting.method.describe(batch)
    assert setting.table.calls == setting.frozen.calls == []
    return lines


def block(lines, anchor):
    """Lines of the first anchor that starts with ``anchor``."""
    start = next(n for n, line in enumerate(lines) if line.startswith(f"anchor      {anchor}"))
    rest = lines[start + 1 :]
    return [lines[start], *rest[: next((n for n, line in enumerate(rest) if not line.startswith("  ")), len(rest))]]


def test_sg_opt_describes_its_rows():
    lines = description(MethodSetup(views="max over tokens, layers 0 to 6"))
    assert sum(line.startswith("anchor") for line in lines) == len(SENTENCES)
    assert block(lines, "A dog") == [
        "anchor      A dog runs. (trained copy)",
        "  positive  A dog runs. (frozen copy: max over tokens, layers 0 to 6; each a positive by itself)",
        "  negative  views of 3 other rows",
        "  left out  1 other row with a text of this one",
    ]
    assert block(lines, "It") == [
        "anchor      It rains. (trained copy)",
        "  positive  It rains. (frozen copy: max over tokens, layers 0 to 6; each a positive by itself)",
        "  negative  views of 4 other rows",
    ]


def test_descriptions_of_the_variants_differ():
    first = {variant: description(MethodSetup(variant=variant)) for variant in VARIANTS}
    assert [variant for variant in VARIANTS if any("embeddings and views of" in line for line in first[variant])] == [
        "sg",
        "opt1",
    ]
    assert [variant for variant in VARIANTS if "one drawn at each step" in first[variant][1]] == ["sg", "opt1", "opt2"]
    assert first["sg"][-1] == "each view is an anchor too, and its row's embedding the positive"
    assert not first["opt1"][-1].startswith("each view")


def test_two_texts_and_a_margin_are_described():
    lines = description(MethodSetup(PAIRS, false_negative_margin=0.1))
    assert block(lines, "It")[:2] == [
        "anchor      It rains. (trained copy)",
        "  positive  It is raining. (frozen copy: all layers; each a positive by itself)",
    ]
    assert (
        lines[-1] == "at each step, rows that are more similar to the anchor than its positive by over 0.1 are left out"
    )


def test_bt_describes_its_pairs():
    lines = description(MethodSetup(PAIRS, "bt", false_negative_margin=0.0))
    assert block(lines, "The cat") == [
        "anchor      The cat is waiting.",
        "  positive  A cat waits.",
        "  negative  both texts of 3 other rows",
        "  left out  1 other row with a text of this one",
    ]
    assert lines[-2:] == [
        "each positive is an anchor too, and its anchor the positive",
        "at each step, rows that are more similar to the anchor than its positive are left out",
    ]
