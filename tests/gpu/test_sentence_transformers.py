"""The losses for sentence-transformers on a GPU have the values and gradients of the CPU."""

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from nearfar import Encoder
from nearfar.sentence_transformers import InfoNceLoss, PremiseSclLoss, SelfGuidedLoss, SupconLoss
from tests.gpu.devices import GPU
from tests.tiny import nli_rows, save_tiny

pytestmark = [pytest.mark.long, *GPU]

ROWS = nli_rows(8)
PREMISES, HYPOTHESES = [row.premise for row in ROWS], [row.hypothesis for row in ROWS]
CASES: dict[str, tuple[Any, dict[str, Any], list[list[str]], bool]] = {
    "info-nce": (InfoNceLoss, {"directions": "all"}, [PREMISES, HYPOTHESES], False),
    "scl": (PremiseSclLoss, {"temperature": 8.0}, [PREMISES, HYPOTHESES], True),
    "sg": (SelfGuidedLoss, {"variant": "sg", "projection": 16, "temperature": 0.3}, [PREMISES], False),
    "sg-opt": (SelfGuidedLoss, {"projection": 16, "temperature": 0.3}, [PREMISES, HYPOTHESES], False),
    "supcon": (SupconLoss, {}, [HYPOTHESES], True),
}


def value_and_gradients(name: str, folder: Path, device: str) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    kind, settings, columns, labelled = CASES[name]
    torch.manual_seed(0)  # the head, which is made on the CPU
    model = SentenceTransformer(str(folder), device="cpu")
    loss: nn.Module = kind(model, **settings).to(device)
    model.to(device)
    features = [
        {key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in column.items()}
        for column in (model.preprocess(column) for column in columns)
    ]
    torch.manual_seed(1)  # the layers that are drawn, by the CPU's generator
    value = loss(features, torch.tensor([row.label for row in ROWS], device=device) if labelled else None)
    value.backward()
    gradients = {key: weight.grad.cpu() for key, weight in loss.named_parameters() if weight.grad is not None}
    return value.detach().cpu(), gradients


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_the_cpu(name: str, tmp_path: Path) -> None:
    plain = save_tiny(tmp_path / "plain", dropout=0.0)
    Encoder.from_pretrained(plain, pooling="cls").save_pretrained(tmp_path / "tiny")
    (found, gradients), (expected, reference) = (
        value_and_gradients(name, tmp_path / "tiny", device) for device in ("cuda", "cpu")
    )
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert gradients.keys() == reference.keys()
    assert max(gradient.norm() for gradient in reference.values()) > 1e-3
    for key, gradient in gradients.items():
        assert (gradient - reference[key]).norm() <= 1e-4 * reference[key].norm() + 1e-6, key
