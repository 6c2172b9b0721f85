"""Ragged batches equal padded batches, in values and gradients, for every architecture; texts are independent."""

from pathlib import Path

import pytest
import torch

from nearfar.encoder.encoder import Encoder
from nearfar.encoder.ragged import RaggedBatch, Route, hidden_states, ragged_attention
from nearfar.encoder.tokens import LengthGroup
from tests.same_gradients import assert_same_gradients, gradients_of
from tests.tiny import ARCHITECTURES, DECODERS, PADDED, save_tiny, sentences


def both_ways(encoder: Encoder, token_ids: list[list[int]]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Hidden states of all layers by the encoder's route, and by plain attention on a padded batch."""
    batch = RaggedBatch.pack(token_ids)
    ours = hidden_states(encoder.backbone, batch, encoder.route, all_layers=True)
    implementation = encoder.backbone.config._attn_implementation
    encoder.backbone.set_attn_implementation("eager")
    ordered = sorted(token_ids, key=len)
    longest = len(ordered[-1])
    pad = encoder.backbone.config.pad_token_id
    ids = torch.tensor([ids + [pad] * (longest - len(ids)) for ids in ordered])
    mask = torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids in ordered])
    output = encoder.backbone(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    theirs = [layer[mask.bool()] for layer in output.hidden_states]
    encoder.backbone.set_attn_implementation(implementation)
    return ours, theirs


@pytest.mark.long
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, *DECODERS])
def test_ragged_equals_padded(architecture: str, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path, architecture))
    assert encoder.route.ragged == (architecture not in PADDED)
    token_ids = encoder.tokenize([*sentences(9, longest=5), *sentences(3, seed=1, longest=40)]).ids
    ours, theirs = both_ways(encoder, token_ids)
    assert len(ours) == len(theirs) == encoder.backbone.config.num_hidden_layers + 1
    for layer, expected in zip(ours, theirs, strict=True):
        assert expected.abs().max() > 0.1
        torch.testing.assert_close(layer, expected, atol=1e-5, rtol=0)

    weights = torch.randn(ours[-1].shape, generator=torch.Generator().manual_seed(0))
    gradients = []
    for states in (ours[-1], theirs[-1]):
        encoder.backbone.zero_grad()
        (states * weights).sum().backward()
        gradients.append(gradients_of(encoder.backbone))
    assert_same_gradients(*gradients, tolerance=1e-4)


def test_position_ids_start_at_the_backbones_first_position(tmp_path: Path) -> None:
    assert Encoder.from_pretrained(save_tiny(tmp_path / "b", "bert")).route == Route(ragged=True, first_position=0)
    assert Encoder.from_pretrained(save_tiny(tmp_path / "r", "roberta")).route == Route(ragged=True, first_position=2)


def test_pack_sorts_by_length_and_returns_in_the_callers_order() -> None:
    batch = RaggedBatch.pack([[1, 2, 3], [4], [5, 6, 7], [8, 9]], types=[[0, 0, 1], [1], [0, 1, 1], [0, 1]])
    assert batch.ids.tolist() == [4, 8, 9, 1, 2, 3, 5, 6, 7]
    assert batch.types.tolist() == [1, 0, 1, 0, 0, 1, 0, 1, 1]
    assert batch.groups == [LengthGroup(0, 1, 1), LengthGroup(1, 1, 2), LengthGroup(3, 2, 3)]
    assert batch.positions().tolist() == [0, 0, 1, 0, 1, 2, 0, 1, 2]
    packed = torch.tensor([[1.0], [3.0], [0.0], [2.0]])  # by caller's index: 1, 3, 0, 2
    assert batch.restore_order(packed).flatten().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_attention_with_fewer_key_heads_and_positions_in_float32(key_heads: int) -> None:
    """As of models with grouped queries, and of rotary positions under autocast."""
    batch = RaggedBatch.pack([[1] * length for length in (3, 5, 9)])
    query = torch.randn(1, 4, 17, 16)
    key, value = torch.randn(2, 1, key_heads, 17, 16)
    value = value.bfloat16()
    actual, _ = ragged_attention(torch.nn.Module(), query, key, value, None, segments=batch)
    pieces = zip(*(tensor.bfloat16().split([3, 5, 9], dim=2) for tensor in (query, key, value)), strict=True)
    attend = torch.nn.functional.scaled_dot_product_attention
    expected = torch.cat([attend(*piece, enable_gqa=True) for piece in pieces], dim=2).transpose(1, 2)
    torch.testing.assert_close(actual, expected, atol=2e-2, rtol=2e-2)
