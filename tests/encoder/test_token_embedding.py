"""Embeddings with in-place gradients give autograd's gradient, also if other layers add to it."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from nearfar.encoder.encoder import Encoder
from nearfar.encoder.training_encoder import Embedding, TrainingEncoder, add_gradients_in_place
from tests.tiny import save_tiny


def broadcast_from_first(work):  # type: ignore[no-untyped-def]
    return work()


def test_special_embeddings_are_not_replaced() -> None:
    module = nn.ModuleList([nn.Embedding(5, 2, sparse=True), nn.Embedding(5, 2, max_norm=1.0), nn.Embedding(5, 2)])
    add_gradients_in_place(module)
    assert [type(part) for part in module] == [nn.Embedding, nn.Embedding, Embedding]


def gradients(embedding: nn.Embedding, steps: list[list[Tensor]]) -> list[Tensor]:
    """Gradients after each step, which has several batches of ids, each looked up twice in one graph."""
    found = []
    for batches in steps:
        embedding.zero_grad()
        for ids in batches:
            rows = embedding(ids).sin() + embedding(ids.flip(0))
            rows.square().sum().backward()
        assert embedding.weight.grad is not None
        found.append(embedding.weight.grad.clone())
    return found


def test_embedding_has_autograds_gradient() -> None:
    plain = nn.Embedding(30, 6, padding_idx=0)
    copy = nn.Embedding(30, 6, padding_idx=0)
    copy.load_state_dict(plain.state_dict())
    add_gradients_in_place(copy)
    generator = torch.Generator().manual_seed(0)
    steps = [[torch.randint(30, shape, generator=generator) for shape in ((4, 5), (7,))] for _ in range(3)]
    for one, other in zip(gradients(copy, steps), gradients(plain, steps), strict=True):
        torch.testing.assert_close(one, other)
    assert not copy(steps[0][0]).detach().requires_grad
    with torch.no_grad():
        assert not copy(steps[0][0]).requires_grad


def test_embedding_tied_to_an_output_layer() -> None:
    """As in masked language modelling: one weight with gradients from both layers."""
    for first in (True, False):
        found = []
        for swap in (True, False):
            torch.manual_seed(0)
            embedding = nn.Embedding(9, 4)
            if swap:
                add_gradients_in_place(embedding)
            ids = torch.tensor([1, 1, 5])
            for _ in range(2):  # the second time into the buffer of the first
                embedding.zero_grad()
                parts = [functional.linear(embedding(ids), embedding.weight).sin().sum(), embedding(ids).square().sum()]
                for part in parts if first else parts[::-1]:
                    part.backward()
            assert embedding.weight.grad is not None
            found.append(embedding.weight.grad)
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert"])
def test_all_token_embeddings_of_a_training_encoder_are_replaced(architecture: str, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path, architecture))
    TrainingEncoder(encoder, max_length=None, bf16=True, broadcast_from_first=broadcast_from_first)
    kinds = {type(part) for part in encoder.modules()}
    assert Embedding in kinds
    assert nn.Embedding not in kinds
