"""Batches as SentenceTransformerTrainer gives them to a loss, and gradients by the names of the weights."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

Features = list[dict[str, Any]]


def features_of(
    model: SentenceTransformer, *columns: Sequence[str], prompts: Sequence[str | None] = (None,) * 9
) -> Features:
    """The tokenized columns."""
    return [model.preprocess(list(column), prompt=prompt) for column, prompt in zip(columns, prompts, strict=False)]


def backbone_gradients(backbone: nn.Module) -> dict[str, Tensor]:
    """The gradient of every weight of a transformer; zeros where it has none."""
    return {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()
        for name, weight in backbone.named_parameters()
    }


def assert_same_gradients(one: nn.Module, other: nn.Module, *, without: Iterable[str] = ()) -> None:
    """The weights of two transformers have the same gradients, which are not all small."""
    found, expected = backbone_gradients(one), backbone_gradients(other)
    found = {name: gradient for name, gradient in found.items() if name in expected and name not in without}
    assert found.keys() >= {name for name in expected if not name.startswith("pooler.")}
    assert max(gradient.abs().max() for gradient in found.values()) > 1e-3
    for name, gradient in found.items():
        torch.testing.assert_close(
            gradient, expected[name], atol=1e-5, rtol=1e-3, msg=lambda text, n=name: f"{n}: {text}"
        )
