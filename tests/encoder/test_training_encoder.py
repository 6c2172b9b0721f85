"""Encoder and classifier in training: gradients of embeddings in place, items tokenised once, weights of the parts."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from nearfar.encoder.classifier import Classifier
from nearfar.encoder.training_encoder import TrainingClassifier, add_gradients_in_place
from tests.encoder.tiny_pairs import items, save_tiny_for_pairs
from tests.tiny import ARCHITECTURES


def gradients(embedding: nn.Embedding, steps: list[list[Tensor]]) -> list[Tensor]:
    """Gradients after each step, which has several batches of ids, each looked up twice in one graph."""
    found = []
    for batches in steps:
        embedding.zero_grad()
        for ids in batches:
            rows = embedding(ids).sin() + embedding(ids.flip(0))
            rows.square().sum().backward()
        assert embedding.weight.grad is not None
        assert not embedding.weight.grad.is_sparse
        found.append(embedding.weight.grad.clone())
    return found


def test_embedding_has_autograds_gradient() -> None:
    plain = nn.Embedding(30, 6, padding_idx=0)
    copy = nn.Embedding(30, 6, padding_idx=0)
    copy.load_state_dict(plain.state_dict())
    add_gradients_in_place(copy)
    generator = torch.Generator().manual_seed(0)
    steps = [[torch.randint(30, shape, generator=generator) for shape in ((4, 5), (7,))] for _ in range(3)]
    for one, other in zip(gradients(copy, steps), gradients(plain, steps), strict=True):
        torch.testing.assert_close(one, other)
    add_gradients_in_place(nn.Embedding(3, 2).requires_grad_(False))  # frozen, as beside adapters
    with torch.no_grad():
        assert not copy(steps[0][0]).requires_grad


def test_embedding_tied_to_an_output_layer() -> None:
    """As in masked language modelling: one weight with gradients from both layers."""
    for first in (True, False):
        found = []
        for swap in (True, False):
            torch.manual_seed(0)
            embedding = nn.Embedding(9, 4)
            if swap:
                add_gradients_in_place(embedding)
            ids = torch.tensor([1, 1, 5])
            for _ in range(2):  # the second time into the buffer of the first
                embedding.zero_grad()
                parts = [functional.linear(embedding(ids), embedding.weight).sin().sum(), embedding(ids).square().sum()]
                for part in parts if first else parts[::-1]:
                    part.backward()
            assert embedding.weight.grad is not None
            found.append(embedding.weight.grad)
        torch.testing.assert_close(*found)


def open_for_training(folder: Path, several: list, architecture: str = "bert", *, max_length: int | None = None):
    torch.manual_seed(5)
    classifier = Classifier.from_pretrained(save_tiny_for_pairs(folder, architecture), label_names=("no", "yes"))
    return classifier, TrainingClassifier(classifier, several, max_length=max_length, bf16=False)


@pytest.mark.long
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "deberta-v2"])
def test_each_weight_belongs_to_backbone_or_head_and_is_trained(architecture: str, tmp_path: Path) -> None:
    several = items(6)
    classifier, training = open_for_training(tmp_path, several, architecture)
    backbone, head = ([id(p) for p in module.parameters()] for module in (classifier.backbone, training.head))
    assert head
    assert sorted(backbone + head) == sorted(id(p) for p in classifier.parameters())

    classifier.backbone.eval()
    training.head.eval()
    logits = training.head(training.states(several))
    assert logits.detach().numpy() == pytest.approx(classifier.predict(several), abs=1e-5)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in training.head.parameters())


def test_items_are_tokenised_once_and_truncated_ones_counted_by_row(tmp_path: Path) -> None:
    long, short = ("a dog " * 9, "the cat"), ("a dog", "the cat")
    classifier, training = open_for_training(tmp_path, [long, short, long], max_length=9)
    assert training.truncated == 2
    tokenize, classifier.tokenize = classifier.tokenize, None  # type: ignore[method-assign]
    classifier.eval()
    states = training.states([short, long, short])
    classifier.tokenize = tokenize  # type: ignore[method-assign]
    torch.testing.assert_close(states, classifier.cls(tokenize([short, long, short], max_length=9)))
    assert states.requires_grad
