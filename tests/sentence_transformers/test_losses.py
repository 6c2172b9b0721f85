"""Each loss has the value and the gradient of its nearfar method, on the same rows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from nearfar import Encoder
from nearfar.data.batching import TextBatches
from nearfar.methods import Method
from nearfar.methods.gunel import SupconTextConfig
from nearfar.methods.kim import BtSgOptConfig, SgConfig, SgOpt1Config, SgOpt2Config, SgOptConfig
from nearfar.methods.liao import SclConfig
from nearfar.methods.simcse import InfoNceConfig
from nearfar.sentence_transformers import InfoNceLoss, PremiseSclLoss, SelfGuidedLoss, SupconLoss
from tests.methods.table_encoder import built_on
from tests.sentence_transformers.batches import assert_same_gradients, features_of
from tests.tiny import nli_rows

TRIPLETS = [
    ("a dog runs", "one dog runs", "a cat sleeps"),
    ("a cat sleeps", "one cat sleeps", "a dog runs"),  # its positive and the anchor of the first row's negative
    ("a dog runs", "the dog runs by", "a bird is not here"),  # the first row's anchor: their positives are no negatives
    ("red house", "a red house", "blue house"),
    ("the man eats", "red house", "no man eats"),  # its positive is the anchor of the row before
]
SENTENCES = [("a dog runs",), ("two men sing",), ("a cat sleeps",), ("a dog runs",), ("red house",)]
PAIRS = [
    ("a dog runs", "one dog runs"),
    ("red house", "a red house"),
    ("one dog runs", "a dog is seen"),
    ("a cat", "a cat"),
]


def compare(
    loss: nn.Module,
    model: SentenceTransformer,
    method: Method,
    encoder: Encoder,
    columns: Sequence[Sequence[str]],
    labels: Sequence[int] | None = None,
) -> None:
    """The loss of ``columns`` equals that of the method's batch, in value and in the gradients of all weights."""
    found = loss(features_of(model, *columns), None if labels is None else torch.tensor(labels))
    expected = method.loss(next(method.batches.epoch(0))).total
    assert found.shape == ()
    assert found > 0.01
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    model.zero_grad()
    found.backward()
    expected.backward()
    assert_same_gradients(model.transformers_model, encoder.backbone)


def in_batch_order(method: Method, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The columns of the method's only batch."""
    return [list(column) for column in zip(*(rows[row] for row in next(method.batches.epoch(0)).rows), strict=True)]


@pytest.mark.long
@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("directions", ["query_to_doc", "doc_to_query", "both", "all"])
def test_info_nce(model: SentenceTransformer, encoder: Encoder, directions: Any, columns: int) -> None:
    rows = [row[:columns] for row in TRIPLETS]
    weight = 0.7 if columns == 3 and directions != "doc_to_query" else 0.0
    settings: dict[str, Any] = {"temperature": 0.1, "directions": directions, "hard_negative_weight": weight}
    method = built_on(InfoNceConfig(output="x", **settings), encoder, rows)
    compare(InfoNceLoss(model, **settings), model, method, encoder, in_batch_order(method, rows))


@pytest.mark.long
def test_several_columns_of_negatives(model: SentenceTransformer, encoder: Encoder) -> None:
    """Negatives of two columns are those of one column in rows of their own, as candidates of every anchor."""
    anchors, positives = ["a dog", "a cat"], ["one dog", "one cat"]
    first, second = ["red house", "blue house"], ["the park", "a dog"]  # the last is the first anchor, and masked there
    found = InfoNceLoss(model, temperature=0.5)(features_of(model, anchors, positives, first, second))
    embed = lambda texts: nn.functional.normalize(encoder.embed(texts), dim=1)  # noqa: E731
    logits = embed(anchors) @ embed([*positives, *first, *second]).T / 0.5
    kept = torch.tensor([[True] * 5 + [False], [True] * 6])
    expected = -logits.masked_fill(~kept, -torch.inf).log_softmax(dim=1)[[0, 1], [0, 1]].mean()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("scl_weight", [0.3, 1.0])
@pytest.mark.parametrize("hard_negatives", ["all", "contradiction", "none"])
def test_premise_scl(model: SentenceTransformer, encoder: Encoder, hard_negatives: Any, scl_weight: float) -> None:
    rows = nli_rows(4)
    settings: dict[str, Any] = {"scl_weight": scl_weight, "temperature": 8.0, "hard_negatives": hard_negatives}
    method = built_on(SclConfig(output="x", **settings), encoder, rows)
    loss = PremiseSclLoss(model, **settings)
    if loss.head is not None:
        assert method.head is not None
        loss.head.load_state_dict(method.head.state_dict())
    premises, hypotheses, labels = in_batch_order(method, rows)
    compare(loss, model, method, encoder, [premises, hypotheses], labels)
    if loss.head is not None:
        for found, expected in zip(loss.head.parameters(), method.head.parameters(), strict=True):
            torch.testing.assert_close(found.grad, expected.grad, atol=1e-5, rtol=1e-3)


def move(backbone: nn.Module) -> None:
    """Move the trained weights away from those of the frozen copy, the same for two backbones of the same weights."""
    torch.manual_seed(3)
    with torch.no_grad():
        for name, weight in backbone.named_parameters():
            if weight.requires_grad and not name.startswith("pooler."):
                weight.add_(0.02 * torch.randn_like(weight))


@pytest.mark.long
@pytest.mark.parametrize("kind", [SgConfig, SgOpt1Config, SgOpt2Config, SgOptConfig, BtSgOptConfig])
def test_self_guided(model: SentenceTransformer, encoder: Encoder, kind: Any) -> None:
    rows = PAIRS if kind is BtSgOptConfig else SENTENCES
    method = built_on(kind(output="x", projection=16, temperature=0.3, drift_weight=0.2), encoder, rows)
    loss = SelfGuidedLoss(model, variant=kind.variant, projection=16, temperature=0.3, drift_weight=0.2)
    assert loss.head is not None
    assert method.head is not None
    loss.head.load_state_dict(method.head.state_dict())
    move(model.transformers_model)
    move(encoder.backbone)
    columns = in_batch_order(method, rows)
    torch.manual_seed(4)  # the layers that are drawn
    found = loss(features_of(model, *columns))
    torch.manual_seed(4)
    expected = method.loss(next(method.batches.epoch(0)))
    assert expected.penalty is not None
    assert expected.penalty > 0.01
    torch.testing.assert_close(found, expected.total, atol=1e-5, rtol=1e-5)
    found.backward()
    expected.total.backward()
    assert_same_gradients(model.transformers_model, encoder.backbone)
    assert all(weight.grad is None for weight in loss.guide.parameters())
    for one, other in zip(loss.head.parameters(), method.head.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-3)


def test_the_guide_stays_frozen_and_in_its_mode(model: SentenceTransformer) -> None:
    loss = SelfGuidedLoss(model, projection=None)
    loss.train()
    assert model.transformers_model.training
    assert not loss.guide.backbone.training
    assert not any(weight.requires_grad for weight in loss.guide.parameters())
    assert not any(weight.requires_grad for weight in model.transformers_model.embeddings.parameters())
    noisy = SelfGuidedLoss(model, projection=None, guide_dropout=True, freeze_embeddings=False)
    noisy.eval()
    assert noisy.guide.backbone.training


@pytest.mark.long
def test_supcon(model: SentenceTransformer, encoder: Encoder) -> None:
    texts = ["a dog", "one dog", "a cat", "one cat", "a dog", "red house", "blue house", "red"]
    labels = [0, 0, 1, 1, 0, 1, 2, 2]  # "a dog" comes twice, and counts once
    batches = TextBatches([(text,) for text in texts], len(texts), targets=[float(label) for label in labels])
    data = {"targets": labels, "label_names": ("dog", "cat", "house")}
    method = replace(built_on(SupconTextConfig(output="x"), encoder, list(batches.texts), **data), batches=batches)
    rows = list(zip(texts, labels, strict=True))
    ordered, targets = in_batch_order(method, rows)
    compare(SupconLoss(model), model, method, encoder, [ordered], targets)
