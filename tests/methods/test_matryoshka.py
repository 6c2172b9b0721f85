"""``--matryoshka``: every method's loss at several widths against plain loops in float64, and whole runs with it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from nearfar import Encoder, NearfarError
from nearfar.commands.train import train
from nearfar.commands.train.prepare import PreparedRun, prepare
from nearfar.methods import Loss, Method
from nearfar.methods.mixture import train_at_widths
from nearfar.methods.simcse import InfoNceConfig
from nearfar.registry import METHODS
from nearfar.training.gradients import seed_rng
from tests.method_configs import by_night, config, write_data

DIM, WIDTHS, WEIGHTS = 32, (8, 32, 3), (0.5, 1.0, 2.0)
BY_DAY = ("scl", "simcse-unsup", "sg-opt", "supcon-text", "regression", "info-nce")
"""A method of each paper; the others are tested at night. distill fits all dimensions of the teacher."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


def step(run: PreparedRun) -> tuple[Method, Any]:
    ((method, batch, _),) = next(run.mixture.epoch(0))
    return method, batch


def in_float64(run: PreparedRun, rows: int, views: tuple[int, ...]) -> Tensor:
    """Random representations; heads compute in float64 too."""
    for head in run.mixture.heads:
        head.double()
    draw = torch.Generator().manual_seed(0)
    return torch.randn(rows, *views, DIM, generator=draw, dtype=torch.float64).requires_grad_()


def compared(losses: Callable[[], Tensor], rows: Tensor, run: PreparedRun) -> tuple[Tensor, list[Tensor]]:
    """A loss, and its gradients with respect to the rows and to the heads."""
    parameters = [parameter for head in run.mixture.heads for parameter in head.parameters()]
    seed_rng(5)
    total = losses()
    found = torch.autograd.grad(total, [rows, *parameters], allow_unused=True)
    return total, [gradient for gradient in found if gradient is not None]


@pytest.mark.long
@pytest.mark.parametrize("method", by_night((name for name in METHODS if name != "distill"), BY_DAY))
def test_the_loss_is_the_sum_of_the_losses_of_the_first_dimensions(method: str, folder: Path) -> None:
    """The reference sets the other dimensions to zero by hand, which cosines, dot products and heads do not see."""
    settings = config(method, folder, model=str(folder / "tiny"))
    single, several = (
        prepare(replace(settings, matryoshka=widths, matryoshka_weights=weights))
        for widths, weights in ((None, None), (WIDTHS, WEIGHTS))
    )
    for head, other in zip(single.mixture.heads, several.mixture.heads, strict=True):
        other.load_state_dict(head.state_dict())
    objective, batch = step(single)
    shape = objective.represent(objective.extract_items(batch)).shape
    rows = in_float64(single, shape[0], tuple(shape[1:-1]))
    in_float64(several, 1, ())

    def reference() -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        state = torch.get_rng_state()
        for width, weight in zip(WIDTHS, WEIGHTS, strict=True):
            torch.set_rng_state(state)
            mask = torch.zeros(DIM, dtype=torch.float64)
            mask[:width] = 1
            loss = objective.loss_fn(batch, rows * mask)
            total = total + weight * loss.value
        return total if loss.penalty is None else total + loss.penalty

    expected, expected_gradients = compared(reference, rows, single)
    ours, our_gradients = compared(lambda: step(several)[0].loss_fn(batch, rows).total, rows, several)
    assert ours.item() == pytest.approx(expected.item(), rel=1e-9)
    assert len(our_gradients) == len(expected_gradients)
    assert float(our_gradients[0].abs().max()) > 1e-6
    for one, other in zip(our_gradients, expected_gradients, strict=True):
        assert torch.allclose(one, other, rtol=1e-7, atol=1e-10)


@pytest.mark.long
def test_a_run_records_its_widths(folder: Path, tmp_path: Path) -> None:
    sets = ({"method": "scl", "data": [str(folder / "nli.tsv")]},)
    settings = config("info-nce", folder, matryoshka=(16, 32), micro_batch=4, epochs=2, sets=sets)
    train(replace(settings, output=str(tmp_path / "whole")))
    assert "matryoshka = [\n    16,\n    32,\n]" in (tmp_path / "whole" / "config.toml").read_text()
    record = json.loads((tmp_path / "whole" / "run.json").read_text())
    assert record["config"]["matryoshka"] == [16, 32]
    assert "matryoshka: the loss on the first 16 (weight 1), 32 (weight 1) of 32 dimensions" in record["data"]
    logged = json.loads((tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()[1])
    assert {"info-nce.loss@16", "info-nce.loss@32", "scl.loss@16", "scl.loss@32"} <= logged.keys()

    folder_of_model = tmp_path / "whole" / "model"
    encoder = Encoder.from_pretrained(folder_of_model)
    assert encoder.matryoshka == (32, 16)
    texts = ["the dog runs .", "a cat sleeps in the park ."]
    theirs = SentenceTransformer(str(folder_of_model), device="cpu", truncate_dim=16).encode(texts)
    assert np.allclose(encoder.encode(texts, dimensions=16, precision="fp32"), theirs, atol=1e-5)


def test_a_method_without_embeddings_is_refused() -> None:
    toy = Method("toy", None, list, list, lambda _, rows: Loss(rows.sum(), {}), list)  # type: ignore[arg-type]
    settings = InfoNceConfig(output="x", matryoshka=(8,))
    with pytest.raises(NearfarError, match=r"the loss of toy is not defined on the first dimensions of embeddings"):
        train_at_widths(replace(toy, embeddings=False), settings, 32)
    with pytest.raises(NearfarError, match=r"toy represents an item by \[2\] numbers, not by an embedding with 32"):
        train_at_widths(toy, settings, 32).loss_fn(None, torch.ones(3, 2))
