"""Texts are compared by their token ids, however a batch is laid out; wrong columns and labels have a clear error."""

import re
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, StaticEmbedding
from torch import distributed

from nearfar import NearfarError
from nearfar.sentence_transformers import (
    InfoNceLoss,
    PremiseBatches,
    PremiseSclLoss,
    SelfGuidedLoss,
    SupconLoss,
    edge_tokens,
    text_ids,
    token_rows,
)
from tests.sentence_transformers.batches import features_of

TEXTS = ["a dog", "one cat runs", "a dog", "zebra"]  # the last is the unknown token


@pytest.mark.long
def test_equal_texts_have_equal_numbers_in_all_columns(model: SentenceTransformer) -> None:
    edges = edge_tokens(model)
    first, second = text_ids(features_of(model, TEXTS, ["one cat runs", "red", "zebra", "a dog runs"]), edges)
    assert first.tolist() == [0, 1, 0, 2]
    assert second.tolist() == [1, 3, 2, 4]


@pytest.mark.long
def test_concatenated_texts(model: SentenceTransformer) -> None:
    (padded,) = features_of(model, TEXTS)
    rows = token_rows(padded)
    ends = torch.tensor([0, *map(len, rows)]).cumsum(0)
    flat = {"input_ids": torch.tensor([[token for row in rows for token in row]]), "cu_seq_lens_q": ends}
    assert token_rows(flat) == rows


@pytest.mark.long
def test_static_embeddings(model: SentenceTransformer) -> None:
    static = SentenceTransformer(
        modules=[StaticEmbedding(model.tokenizer.backend_tokenizer, embedding_dim=8)], device="cpu"
    )
    (features,) = features_of(static, TEXTS)
    assert features["input_ids"].ndim == 1
    (numbers,) = text_ids([features], edge_tokens(static))
    assert numbers.tolist() == [0, 1, 0, 2]
    assert InfoNceLoss(static)(features_of(static, TEXTS, ["red"] * 4)).isfinite()
    with pytest.raises(NearfarError, match="a model with a transformer"):
        SelfGuidedLoss(static)


def test_inputs_that_are_not_texts_are_refused(model: SentenceTransformer) -> None:
    with pytest.raises(NearfarError, match="need texts"):
        SupconLoss(model)([{"pixel_values": torch.zeros(2, 3)}], torch.tensor([0, 1]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "columns", "labels", "message"),
    [
        (InfoNceLoss, 1, None, "InfoNceLoss needs the columns anchor, positive[, negatives], but the data set has 1"),
        (InfoNceLoss, 2, [0, 1], "InfoNceLoss takes no labels"),
        (SelfGuidedLoss, 3, None, "SelfGuidedLoss needs the columns sentence[, back-translation]"),
        (PremiseSclLoss, 2, None, "rows of a batch: 0 entailment, 1 neutral, 2 contradiction; found none"),
        (PremiseSclLoss, 2, [0.0, 1.0], "found float32 labels"),
        (PremiseSclLoss, 2, [0, -1], "labels must be in 0..2"),
        (SupconLoss, 1, [[0, 1], [1, 0]], "one integer for each of the 2 rows"),
    ],
)
def test_wrong_columns_and_labels(
    model: SentenceTransformer, kind: Any, columns: int, labels: list[Any] | None, message: str
) -> None:
    features = features_of(model, *[["a dog", "a cat"]] * columns)
    with pytest.raises(NearfarError, match=re.escape(message)):
        kind(model)(features, None if labels is None else torch.tensor(labels))


@pytest.mark.long
def test_settings_that_no_model_fits(model: SentenceTransformer) -> None:
    with pytest.raises(NearfarError, match=r"scl_weight must be in \[0, 1\]"):
        PremiseSclLoss(model, scl_weight=1.5)
    with pytest.raises(NearfarError, match="1 or 2 layers"):
        PremiseSclLoss(model, head_layers=3)  # type: ignore[arg-type]
    with pytest.raises(NearfarError, match="layers 0"):
        SelfGuidedLoss(model, views=(0, 3))
    model.append(Dense(32, 8))
    with pytest.raises(NearfarError, match="8 wide, its layers 32"):
        SelfGuidedLoss(model)


@pytest.mark.long
def test_a_head_in_several_processes_is_refused(model: SentenceTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    features = features_of(model, ["a dog", "a cat"])
    with pytest.raises(
        NearfarError, match=r"does not average over the 2 processes.* projection=None and drift_weight=0"
    ):
        SelfGuidedLoss(model)(features)
    assert SelfGuidedLoss(model, projection=None, drift_weight=0.0)(features).isfinite()
    with pytest.raises(NearfarError, match="scl_weight=1"):
        PremiseSclLoss(model)([*features, *features], torch.tensor([0, 1]))


def rows_of(premises: list[str]) -> Dataset:
    return Dataset.from_dict({"premise": premises, "hypothesis": premises, "label": [0] * len(premises)})


def test_premise_batches_keep_the_rows_of_a_premise_together() -> None:
    premises = [f"premise {number % 7}" for number in range(21)]
    batches = PremiseBatches(rows_of(premises), 6, valid_label_columns=["label"], seed=3)
    epochs = []
    for epoch in range(2):
        batches.set_epoch(epoch)
        epochs.append(list(batches))
        assert len(batches) == len(epochs[-1]) == 4
        assert sorted(row for batch in epochs[-1] for row in batch) == list(range(21))
        found = [{premises[row] for row in batch} for batch in epochs[-1]]
        assert sum(map(len, found)) == 7
        assert max(map(len, epochs[-1])) == 6
    assert epochs[0] != epochs[1]
    again = PremiseBatches(rows_of(premises), 6, drop_last=True, generator=torch.Generator(), seed=3)
    assert list(again) == epochs[0]
