"""The classifier in training: items are tokenised once; backbone and head have separate weights."""

from pathlib import Path

import pytest
import torch

from nearfar.encoder.classifier import Classifier
from nearfar.encoder.training_encoder import TrainingClassifier
from tests.encoder.tiny_pairs import items, save_tiny_for_pairs
from tests.tiny import ARCHITECTURES


def open_for_training(folder: Path, architecture: str = "bert", *, bf16: bool = False, max_length: int | None = None):
    torch.manual_seed(5)
    classifier = Classifier.from_pretrained(save_tiny_for_pairs(folder, architecture), label_names=("no", "yes"))
    return classifier, TrainingClassifier(classifier, max_length=max_length, bf16=bf16)


@pytest.mark.long
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "deberta-v2"])
def test_each_weight_belongs_to_backbone_or_head_and_is_trained(architecture: str, tmp_path: Path) -> None:
    classifier, training = open_for_training(tmp_path, architecture)
    backbone, head = ([id(p) for p in module.parameters()] for module in (classifier.backbone, training.head))
    assert head
    assert sorted(backbone + head) == sorted(id(p) for p in classifier.parameters())

    several = items(6)
    training.read(several)
    classifier.backbone.eval()
    training.head.eval()
    logits = training.head(training.states(several))
    assert logits.detach().numpy() == pytest.approx(classifier.predict(several), abs=1e-5)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in training.head.parameters())


@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert", "deberta-v2"])
def test_dropout_of_the_head_follows_its_mode(architecture: str, tmp_path: Path) -> None:
    classifier, training = open_for_training(tmp_path, architecture)
    states = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))

    def differ() -> bool:
        classifier.backbone.eval()
        return not torch.equal(training.head(states), training.head(states))

    training.head.train()
    assert differ()
    classifier.predict([("a dog",)])  # switches the classifier to evaluation mode and back
    training.head.eval()
    assert not differ()
    training.head.train()
    assert differ()


def test_items_are_tokenised_once_and_truncated_ones_counted_by_row(tmp_path: Path) -> None:
    classifier, training = open_for_training(tmp_path, max_length=9)
    long, short = ("a dog " * 9, "the cat"), ("a dog", "the cat")
    training.read([long, short, long])
    assert training.truncated == 2
    tokenize, classifier.tokenize = classifier.tokenize, None  # type: ignore[method-assign]
    classifier.eval()
    states = training.states([short, long, short])
    classifier.tokenize = tokenize  # type: ignore[method-assign]
    torch.testing.assert_close(states, classifier.cls(tokenize([short, long, short], max_length=9)))
    assert states.requires_grad
    training.read([short])
    assert training.truncated == 0
    with pytest.raises(KeyError):
        training.states([long])


def test_bfloat16_computation_returns_float32(tmp_path: Path) -> None:
    classifier, exact = open_for_training(tmp_path)
    rough = TrainingClassifier(classifier, max_length=None, bf16=True)
    several = items(8)
    for training in (exact, rough):
        training.read(several)
    states, rounded = exact.states(several), rough.states(several)
    assert rounded.dtype == torch.float32
    assert not torch.equal(states, rounded)
    torch.testing.assert_close(states, rounded, atol=0.2, rtol=0.2)
