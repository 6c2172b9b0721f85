"""Small models to export: an encoder, and a classifier of pairs."""

from pathlib import Path

import pytest
import torch

from nearfar.encoder.classifier import Classifier
from nearfar.encoder.encoder import Encoder
from tests.encoder.tiny_pairs import save_tiny_for_pairs
from tests.tiny import save_tiny, sentences, write_pairs


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``plain``, ``normalized`` (with Dense and a prompt) and ``classifier``; ``pairs.tsv``, ``labels.tsv``,
    ``texts.txt``."""
    folder = tmp_path_factory.mktemp("models")
    encoder = Encoder.from_pretrained(save_tiny(folder / "plain"))
    torch.manual_seed(1)
    encoder.add_dense()
    encoder.normalizes = True
    encoder.set_prompts(default="the dog: ")
    encoder.save_pretrained(folder / "normalized")
    torch.manual_seed(3)
    classifier = Classifier.from_pretrained(save_tiny_for_pairs(folder / "base"), label_names=["no", "yes"])
    with torch.no_grad():
        classifier.model.classifier.weight.mul_(60)
    classifier.save_pretrained(folder / "classifier")
    write_pairs(folder / "pairs.tsv")
    texts = sentences(40, seed=5)
    items = list(zip(texts[:20], texts[20:], strict=True))
    rows = [f"{first}\t{second}\t{('no', 'yes')[n % 2]}" for n, (first, second) in enumerate(items)]
    (folder / "labels.tsv").write_text("\n".join(["sentence1\tsentence2\tlabel", *rows]) + "\n", encoding="utf-8")
    (folder / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    return folder
