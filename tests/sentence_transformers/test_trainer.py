"""The losses in SentenceTransformerTrainer: training works, and its steps are those of nearfar."""

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from torch import nn

import nearfar
from nearfar.sentence_transformers import InfoNceLoss, PremiseBatches, PremiseSclLoss
from tests.tiny import WORDS, nli_rows, write_nli, write_pairs

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")


def train(
    model: SentenceTransformer, loss: nn.Module, rows: Dataset, folder: Path, **settings: Any
) -> SentenceTransformerTrainer:
    """Train on the CPU, without warm-up and reports."""
    args = SentenceTransformerTrainingArguments(
        output_dir=str(folder), use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True, **settings
    )
    trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=rows, loss=loss)
    trainer.train()
    return trainer


def pairs() -> Dataset:
    """Anchors, and positives with the same first word; anchors repeat."""
    words = [word for word in WORDS if word.isalpha()][:12]
    anchors = [f"{word} house" for word in words for _ in range(4)]
    positives = [f"{word} {other}" for word in words for other in ("ball", "river", "park", "apple")]
    return Dataset.from_dict({"anchor": anchors, "positive": positives})


@pytest.mark.long
def test_info_nce_learns_and_is_in_the_model_card(model: SentenceTransformer, tmp_path: Path) -> None:
    rows = pairs()
    loss = InfoNceLoss(model, temperature=0.2)

    def mean_loss() -> float:
        model.eval()
        with torch.no_grad():
            return loss([model.preprocess(rows[column]) for column in ("anchor", "positive")]).item()

    before = mean_loss()
    train(model, loss, rows, tmp_path / "run", num_train_epochs=5, per_device_train_batch_size=16, learning_rate=1e-3)
    assert mean_loss() < 0.7 * before
    model.save_pretrained(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text(encoding="utf-8")
    assert "gao2021simcse" in card
    assert '"directions": "query_to_doc"' in card
    assert "InfoNceLoss" in card


@pytest.mark.long
def test_steps_are_those_of_nearfar(model: SentenceTransformer, folder: Path, tmp_path: Path) -> None:
    """Two epochs of premise SCL by both trainers, in the same batches: the same weights afterwards."""
    file, dev = write_nli(tmp_path / "nli.tsv", premises=10), write_pairs(tmp_path / "pairs.tsv")
    loss: dict[str, Any] = {"scl_weight": 1.0, "temperature": 8.0}
    # The epsilon is so large that rounding of gradients that should be 0 moves no weight.
    shared: dict[str, Any] = {"learning_rate": 1e-3, "adam_epsilon": 1e-4, "seed": 5}
    steps: dict[str, Any] = {"epochs": 2, "batch_size": 9, "warmup": 0.0, "keep": "last", "device": "cpu"}
    own: dict[str, Any] = {"model": folder, "pooling": "own", "data": file, "evaluate_on": dev}
    nearfar.train("scl", output=tmp_path / "ours", **own, **loss, **shared, **steps)
    rows = nli_rows(10)
    data = Dataset.from_dict({key: [getattr(row, key) for row in rows] for key in ("premise", "hypothesis", "label")})
    trainer = train(
        model,
        PremiseSclLoss(model, **loss),
        data,
        tmp_path / "theirs",
        num_train_epochs=2,
        per_device_train_batch_size=9,
        lr_scheduler_type="linear",
        max_grad_norm=1.0,
        batch_sampler=PremiseBatches,
        **shared,
    )
    assert trainer.state.global_step == 8
    start, ours = (SentenceTransformer(str(place), device="cpu") for place in (folder, tmp_path / "ours" / "model"))
    found, expected = model.transformers_model.state_dict(), ours.transformers_model.state_dict()
    distance = max(
        (expected[name] - weight).abs().max() for name, weight in start.transformers_model.state_dict().items()
    )
    assert distance > 3e-3
    for name, weight in found.items():
        torch.testing.assert_close(weight, expected[name], atol=1e-5, rtol=0, msg=lambda text, n=name: f"{n}: {text}")
