"""An encoder on a GPU: ragged equals padded, vectors equal the CPU's, and dropout has the right rate."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from nearfar import Encoder
from nearfar.encoder.ragged import RaggedBatch, Route, hidden_states
from tests.gpu.devices import on_each_device
from tests.same_gradients import assert_same_gradients, gradients_of
from tests.tiny import ARCHITECTURES, PADDED, save_tiny, sentences

pytestmark = pytest.mark.long

SMALL = ("bert", "modernbert")
RAGGED = [architecture for architecture in ARCHITECTURES if architecture not in PADDED]
TEXTS = [*sentences(40, longest=12), *sentences(5, seed=1, longest=40)]


def states_and_gradients(encoder: Encoder, route: Route) -> tuple[Tensor, dict[str, Tensor]]:
    """Last hidden states of all tokens, and the gradient of their weighted sum."""
    encoder.zero_grad()
    batch = RaggedBatch.pack(encoder.tokenize(TEXTS).ids, device=encoder.device)
    (states,) = hidden_states(encoder.backbone, batch, route)
    weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(0))
    (states * weights.to(states.device)).sum().backward()
    return states.detach().cpu(), gradients_of(encoder.backbone)


@on_each_device("architecture", small=(), whole=RAGGED)
def test_ragged_equals_padded(device: str, architecture: str, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path, architecture), device=device)
    assert encoder.route.ragged
    states, gradients = states_and_gradients(encoder, encoder.route)
    encoder.backbone.set_attn_implementation("eager")
    expected, right = states_and_gradients(encoder, Route(ragged=False))
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(states, expected, atol=1e-4, rtol=0)
    assert_same_gradients(gradients, right, tolerance=1e-3)


@on_each_device("architecture", small=SMALL, whole=ARCHITECTURES)
def test_vectors_equal_those_of_the_cpu(device: str, architecture: str, tmp_path: Path) -> None:
    """Texts are encoded one by one on the CPU and together on the GPU."""
    save_tiny(tmp_path, architecture)
    on_cpu = Encoder.from_pretrained(tmp_path, device="cpu")
    encoder = Encoder.from_pretrained(tmp_path, device=device)
    assert encoder.device.type == device
    for settings, tolerance in (({}, 1e-4), ({"normalize": True}, 1e-5)):
        expected = np.concatenate([on_cpu.encode([text], **settings) for text in TEXTS])
        assert np.abs(encoder.encode(TEXTS, **settings) - expected).max() <= tolerance


@on_each_device("architecture", small=("bert",), whole=ARCHITECTURES)
def test_vectors_in_bfloat16_are_close(device: str, architecture: str, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path, architecture), device=device)
    exact, rough = encoder.encode(TEXTS, normalize=True), encoder.encode(TEXTS, normalize=True, precision="bf16")
    assert (exact * rough).sum(axis=1).min() > 0.995
    assert np.abs(exact - rough).max() > 1e-5


@pytest.mark.parametrize("architecture", SMALL)
def test_no_tensor_is_left_on_the_cpu(architecture: str, tmp_path: Path) -> None:
    """The meta device, available on any machine, refuses tensors of other devices like a GPU."""
    encoder = Encoder.from_pretrained(save_tiny(tmp_path, architecture), device="cpu").to("meta")
    for mode in (False, True):
        out = encoder.train(mode)(encoder.tokenize(TEXTS).ids)
        assert out.device.type == "meta"
        out.sum().backward()
    with pytest.raises(RuntimeError, match="not on the expected device meta"):
        out + torch.ones(out.shape)
