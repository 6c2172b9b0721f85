"""Preparing a run: counts and descriptions without training, and reproducible initial weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nearfar.commands.train.plan import plan
from nearfar.commands.train.prepare import prepare
from nearfar.encoder.ragged import transformer_layers
from nearfar.registry import METHODS
from tests.method_configs import by_night, config

pytestmark = pytest.mark.long


@pytest.mark.parametrize("method", by_night(METHODS, ("scl", "simcse-sup", "supcon-text", "bt", "distill")))
def test_a_plan_describes_the_run(method: str, folder: Path, tmp_path: Path) -> None:
    settings = config(method, folder, output=str(tmp_path / "run"), epochs=2)
    counted = plan(settings)
    assert not (tmp_path / "run").exists()
    run = prepare(settings)
    # balanced batches do not see every text in each epoch
    texts = {text for epoch in range(6) for parts in run.mixture.epoch(epoch) for text in parts[0][1].sentences}
    assert counted.steps == sum(len(list(run.mixture.epoch(epoch))) for epoch in range(2))
    assert counted.sentences == len(run.texts.tokens) == len(texts)
    assert counted.tokens == sum(map(len, run.encoder.tokenize(list(texts)).ids))
    assert counted.parameters == sum(p.numel() for p in run.encoder.parameters())
    assert len(counted.batches) == 3
    first = next(run.mixture.epoch(0))[0][1]
    words = "\n".join(counted.batches[0])
    assert all(text in words for text in first.sentences)
    assert any("rows" in fact or "31" in fact for fact in counted.facts)


def test_trained_parameters_are_counted(folder: Path) -> None:
    def counts(method: str, **settings: object) -> tuple[int, int]:
        counted = plan(config(method, folder, **settings))
        return counted.parameters, counted.trained

    total, trained = counts("supcon-text")
    assert total == trained
    head = 24 * 32 + 24 + 24 * 24 + 24
    embeddings = sum(p.numel() for p in prepare(config("bt", folder)).encoder.backbone.embeddings.parameters())
    assert counts("bt") == (total, total - embeddings + head)
    assert counts("simcse-unsup", mlp="kept") == (total + 32 * 32 + 32, total + 32 * 32 + 32)
    rank = 3
    adapters = 2 * rank * (4 * (32 + 32) + 2 * (32 + 48))  # two layers of four square matrices and two of 32 by 48
    assert counts("supcon-text", lora_rank=rank) == (total + adapters, adapters)


def test_memory_grows_with_the_batch_size_and_shrinks_with_micro_batches(folder: Path) -> None:
    sizes = {"batch_size": 5}, {"batch_size": 30}
    small, large, micro_batched, few_tokens = (
        plan(config("simcse-unsup", folder, **extra)).memory_gib
        for extra in (*sizes, {"batch_size": 30, "micro_batch": 2}, {"batch_size": 30, "micro_batch_tokens": 30})
    )
    assert micro_batched < small < large
    assert few_tokens < small
    with_adapters = plan(config("simcse-unsup", folder, batch_size=5, lora_rank=1)).memory_gib
    assert with_adapters < small  # frozen parameters have no optimiser state


def test_truncated_texts_are_reported(folder: Path) -> None:
    lengths = np.diff(prepare(config("sg", folder)).texts.tokens.offsets)
    for settings in ({"train_max_length": 6}, {"max_length": 6}, {"max_length": 6, "train_max_length": 50}):
        fact = f"{(lengths > 6).sum()} of {len(lengths)} sentences have over 6 tokens and are truncated"
        assert fact in plan(config("sg", folder, **settings)).facts


def test_a_batch_size_shrinks_to_the_number_of_rows(folder: Path) -> None:
    run = prepare(config("simcse-unsup", folder, batch_size=500))
    assert run.mixture.losses[0].batches.batch_size == len((folder / "sentences.txt").read_text().splitlines())


@pytest.mark.parametrize("method", ["simcse-sup", "bt"])
def test_a_new_run_has_the_same_initial_weights(method: str, folder: Path) -> None:
    """Initial heads and layers depend only on the seed, and the encoder is unchanged."""

    def start(seed: int, **settings: Any) -> dict[str, torch.Tensor]:
        torch.rand(seed * 7)
        run = prepare(config(method, folder, seed=seed, **settings))
        modules = {f"head {number}": head for number, head in enumerate(run.mixture.heads)} | {"encoder": run.encoder}
        return {f"{key} {name}": p.detach() for key, module in modules.items() for name, p in module.named_parameters()}

    def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
        return all(torch.equal(one[name], other[name]) for name in one)

    assert equal(start(1), start(1))
    assert not equal(start(1), start(2))
    adapters = {"lora_rank": 2} | ({"drift_weight": 0.0} if hasattr(METHODS[method], "drift_weight") else {})
    assert equal(start(1, **adapters), start(1, **adapters))


def test_merging_adapters_keeps_the_vectors(folder: Path) -> None:
    run = prepare(config("simcse-unsup", folder, lora_rank=2))
    names = [name for name, _ in run.encoder.named_parameters() if "lora_B" in name]
    assert len(names) == 6 * len(transformer_layers(run.encoder.backbone))
    texts = ["a dog", "the red river ."]
    before = run.encoder.encode(texts)
    with torch.no_grad():
        for name, parameter in run.encoder.named_parameters():
            if name in names:
                parameter.normal_(std=0.1)
    adapted = run.encoder.encode(texts)
    run.merge()
    assert abs(adapted - before).max() > 1e-3
    assert abs(run.encoder.encode(texts) - adapted).max() < 1e-5
    assert not any("lora" in name for name, _ in run.encoder.named_parameters())
    assert prepare(config("simcse-unsup", folder)).merge is None
