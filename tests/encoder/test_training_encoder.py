"""The classifier in training: items are tokenised once; backbone and head have separate weights."""

from pathlib import Path

import pytest
import torch

from nearfar.encoder.classifier import Classifier
from nearfar.encoder.training_encoder import TrainingClassifier
from tests.encoder.tiny_pairs import items, save_tiny_for_pairs
from tests.tiny import ARCHITECTURES


def halves(folder: Path, architecture: str = "bert", *, bf16: bool = False, max_length: int | None = None):
    torch.manual_seed(5)
    classifier = Classifier.from_pretrained(save_tiny_for_pairs(folder, architecture), label_names=("no", "yes"))
    return classifier, TrainingClassifier(classifier, max_length=max_length, bf16=bf16)


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "deberta-v2"])
def test_each_weight_belongs_to_backbone_or_head_and_is_trained(architecture: str, tmp_path: Path) -> None:
    classifier, half = halves(tmp_path, architecture)
    backbone, head = ([id(p) for p in module.parameters()] for module in (classifier.backbone, half.head))
    assert head
    assert sorted(backbone + head) == sorted(id(p) for p in classifier.parameters())

    several = items(6)
    half.read(several)
    classifier.backbone.eval()
    half.head.eval()
    logits = half.head(half.states(several))
    assert logits.detach().numpy() == pytest.approx(classifier.predict(several), abs=1e-5)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in half.head.parameters())


@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert", "deberta-v2"])
def test_dropout_of_the_head_follows_its_mode(architecture: str, tmp_path: Path) -> None:
    classifier, half = halves(tmp_path, architecture)
    states = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))

    def differ() -> bool:
        classifier.backbone.eval()
        return not torch.equal(half.head(states), half.head(states))

    half.head.train()
    assert differ()
    classifier.predict([("a dog",)])  # switches the classifier to evaluation mode and back
    half.head.eval()
    assert not differ()
    half.head.train()
    assert differ()


def test_items_are_tokenised_once_and_truncated_ones_counted_by_row(tmp_path: Path) -> None:
    classifier, half = halves(tmp_path, max_length=9)
    long, short = ("a dog " * 9, "the cat"), ("a dog", "the cat")
    half.read([long, short, long])
    assert half.truncated == 2
    tokenize, classifier.tokenize = classifier.tokenize, None  # type: ignore[method-assign]
    classifier.eval()
    states = half.states([short, long, short])
    classifier.tokenize = tokenize  # type: ignore[method-assign]
    torch.testing.assert_close(states, classifier.cls(tokenize([short, long, short], max_length=9)))
    assert states.requires_grad
    half.read([short])
    assert half.truncated == 0
    with pytest.raises(KeyError):
        half.states([long])


def test_bfloat16_computation_returns_float32(tmp_path: Path) -> None:
    classifier, exact = halves(tmp_path)
    rough = TrainingClassifier(classifier, max_length=None, bf16=True)
    several = items(8)
    for half in (exact, rough):
        half.read(several)
    states, rounded = exact.states(several), rough.states(several)
    assert rounded.dtype == torch.float32
    assert not torch.equal(states, rounded)
    torch.testing.assert_close(states, rounded, atol=0.2, rtol=0.2)
