"""Small models to export, an encoder and a classifier of pairs; each graph is traced once in a session."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from nearfar.commands.export import graphs
from nearfar.disk.model_folder import SeenHashes
from nearfar.encoder.classifier import Classifier, EmbeddingClassifier
from nearfar.encoder.encoder import Encoder
from tests.encoder.tiny_pairs import save_tiny_for_pairs
from tests.tiny import save_tiny, sentences, write_pairs


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``plain``, ``normalized`` (with Dense, prompt and a head for labels), ``classifier``; files of rows and texts."""
    folder = tmp_path_factory.mktemp("models")
    encoder = Encoder.from_pretrained(save_tiny(folder / "plain"))
    torch.manual_seed(1)
    encoder.add_dense()
    encoder.normalizes = True
    encoder.set_prompts(default="the dog: ")
    encoder.seen = SeenHashes(*np.arange(4, dtype=np.uint64)[:, None])
    encoder.save_pretrained(folder / "normalized")
    weight = np.random.default_rng(0).normal(size=(3, encoder.dim + 1))
    EmbeddingClassifier(encoder, ("a", "b", "c"), weight).save_head(folder / "normalized")
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


@pytest.fixture(scope="session", autouse=True)
def _traced_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A further export of the same model with the same pooling and operators gets a copy of the first one's graph."""
    traced: dict[tuple[str, str, int | None], tuple[Path, int]] = {}
    write, kept = graphs.write_onnx, tmp_path_factory.mktemp("traced")

    def write_once(source: graphs.Source, file: Path, *, opset: int | None) -> int:
        key = str(getattr(source.model, "source", "classifier")), str(source.facts.get("pooling")), opset
        if key not in traced:
            version = write(source, file, opset=opset)
            traced[key] = Path(shutil.copy(file, kept / f"{len(traced)}.onnx")), version
        shutil.copy(traced[key][0], file)
        return traced[key][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs, "write_onnx", write_once)
        yield
