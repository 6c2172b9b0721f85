"""Dropout by seed and index: rate, independence, gradient, equal masks; fused with the LayerNorm after it."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nearfar.encoder import dropout
from nearfar.encoder.dropout import Dropout, DropoutMask, Output, add_norm, apply_dropout_mask, drop, set_dropout
from nearfar.encoder.encoder import Encoder
from nearfar.types import NearfarError
from tests.encoder.kernel_helpers import implementations, needs_kernels
from tests.tiny import save_tiny, sentences

pytestmark = pytest.mark.usefixtures("use_kernels")
MANY = 400_000


@pytest.fixture(params=[pytest.param("kernels", marks=needs_kernels), "plain"])
def implementation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def kept(p: float, count: int = MANY) -> Tensor:
    return (drop(torch.ones(count), p) != 0).float()


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("p", [0.02, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rate_and_scale(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    found = drop(torch.ones(MANY, dtype=dtype), p)
    share = float((found != 0).float().mean())
    assert abs(share - (1 - p)) < 5 * (p * (1 - p) / MANY) ** 0.5
    torch.testing.assert_close(found[found != 0].unique(), torch.tensor([1 / (1 - p)], dtype=dtype), rtol=4e-3, atol=0)
    if dtype == torch.float32:  # E[y] = x: the scale uses the rate as rounded to 16 bits
        dropped = round(65536 * p) / 65536
        assert float(found.max()) == pytest.approx(1 / (1 - dropped), rel=1e-6)


@pytest.mark.usefixtures("implementation")
def test_masks_are_uncorrelated() -> None:
    """No correlation between elements at many distances in one mask, nor between masks."""
    torch.manual_seed(2)
    draws = [kept(0.1) - 0.9 for _ in range(4)]
    bound = 5 * 0.09 / MANY**0.5
    for distance in (1, 2, 3, 4, 5, 8, 12, 16, 32, 384, 1536):
        one = draws[0]
        assert abs(float((one[distance:] * one[:-distance]).mean())) < bound, distance
    for number, one in enumerate(draws):
        for other in draws[number + 1 :]:
            assert abs(float((one * other).mean())) < bound


@pytest.mark.usefixtures("implementation")
def test_gradient_uses_the_same_mask() -> None:
    torch.manual_seed(3)
    x = torch.randn(50, 7, requires_grad=True)
    y = drop(x, 0.3)
    grad_output = torch.randn(50, 7)
    y.backward(grad_output)
    factors = torch.where(y != 0, DropoutMask.draw(0.3).scale, 0.0)
    assert 0 < int((factors == 0).sum()) < 350
    torch.testing.assert_close(y, x * factors)
    torch.testing.assert_close(x.grad, grad_output * factors)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_and_plain_torch_drop_the_same(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(123, 45).to(dtype).T  # not contiguous
    torch.manual_seed(4)
    found = drop(x, 0.1)
    monkeypatch.setattr(dropout, "kernels", lambda: None)
    torch.manual_seed(4)
    assert torch.equal(found, drop(x, 0.1))


def splitmix(seed: int, index: int) -> int:
    """SplitMix64 as published, in Python integers."""
    word = (seed + (index + 1) * 0x9E3779B97F4A7C15) % 2**64
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31


@pytest.mark.parametrize("seed", [0, 1234567, -1, -(2**63)])
def test_the_generator_is_splitmix(seed: int) -> None:
    """Each of a word's four elements uses its own 16 bits."""
    words = torch.tensor([[0, 1], [2**40, 10**12]])
    for threshold in (-32768, -20000, 0, 32767):
        found = DropoutMask(seed, threshold, 1.0).keep_mask(words)
        parts = [
            [splitmix(seed, word) >> 16 * part & 0xFFFF for word in row for part in range(4)] for row in words.tolist()
        ]
        signed = [[bits - 65536 if bits >= 32768 else bits for bits in row] for row in parts]
        assert found.tolist() == [[bits >= threshold for bits in row] for row in signed]
    assert splitmix(1234567, 0) == 6457827717110365317  # reference value of other implementations


def test_masks_differ_and_repeat() -> None:
    torch.manual_seed(5)
    first, second = DropoutMask.draw(0.1), DropoutMask.draw(0.1)
    torch.manual_seed(5)
    assert DropoutMask.draw(0.1) == first
    assert first.seed != second.seed
    state = torch.get_rng_state()
    assert DropoutMask.draw(0.0).keep_mask(torch.arange(1000)).all()
    assert torch.equal(state, torch.get_rng_state())  # p = 0 draws no random number
    assert DropoutMask.draw(0.1).keep_mask(torch.empty(0, dtype=torch.long)).shape == (0,)


def test_probabilities_0_and_1() -> None:
    x = torch.ones(1000)
    assert drop(x, 0.0) is x
    assert not drop(x, 1.0).any()
    assert drop(x.double(), 0.5).dtype == torch.float64  # computed by torch
    assert Dropout(0.5).eval()(x) is x


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert", "electra", "modernbert"])
def test_set_dropout_reaches_every_dropout(architecture: str, tmp_path: Path) -> None:
    """Without dropout two passes in training mode are equal, and with dropout they differ."""
    encoder = Encoder.from_pretrained(save_tiny(tmp_path, architecture))
    texts = sentences(8, longest=6)

    def embed() -> Tensor:
        with torch.no_grad():
            return encoder.train().embed(texts)

    set_dropout(encoder.backbone, 0.3)
    assert not torch.equal(embed(), embed())
    set_dropout(encoder.backbone, 0.0)
    assert torch.equal(embed(), embed())
    torch.testing.assert_close(embed().numpy(), encoder.eval().embed(texts).detach().numpy(), atol=1e-5, rtol=0)


@pytest.mark.long
def test_set_dropout_leaves_the_config(tmp_path: Path) -> None:
    """A model that is saved after training without dropout still has its own dropout."""
    encoder = Encoder.from_pretrained(save_tiny(tmp_path / "start"))
    set_dropout(encoder.backbone, 0.0)
    encoder.save_pretrained(tmp_path / "saved")
    config = Encoder.from_pretrained(tmp_path / "saved").backbone.config
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.1, 0.1)


def test_set_dropout_refuses() -> None:
    with pytest.raises(NearfarError, match=r"must be in \[0, 1\)"):
        set_dropout(nn.Dropout(0.1), 1.0)
    with pytest.raises(NearfarError, match="has no dropout"):
        set_dropout(nn.Linear(2, 2), 0.1)
    set_dropout(nn.Linear(2, 2), 0.0)


SEED = 5


def given(dim: int, tokens: int = 150) -> tuple[list[Tensor], nn.LayerNorm]:
    """Input, residual and output gradient, all representable in bfloat16; and a LayerNorm."""
    generator = torch.Generator().manual_seed(0)
    tensors = torch.randn(3, tokens, dim, generator=generator).add_(0.5).bfloat16().float()
    norm = nn.LayerNorm(dim, eps=1e-3)
    with torch.no_grad():
        norm.weight.copy_(torch.rand(dim, generator=generator) + 0.5)
        norm.bias.copy_(torch.randn(dim, generator=generator))
    return list(tensors.unbind()), norm


def values_and_gradients(tensors: list[Tensor], norm: nn.LayerNorm, p: float) -> list[Tensor]:
    x, residual = (tensor.clone().requires_grad_() for tensor in tensors[:2])
    norm.zero_grad()
    torch.manual_seed(SEED)
    out = add_norm(x, residual, norm, p=p)
    assert out.dtype == x.dtype
    out.backward(tensors[2])
    return [out.detach(), x.grad, residual.grad, norm.weight.grad, norm.bias.grad]  # type: ignore[list-item]


def formula(tensors: list[Tensor], norm: nn.LayerNorm, p: float) -> list[Tensor]:
    """The reference in float64, with torch's LayerNorm."""
    x, residual = (tensor.double().requires_grad_() for tensor in tensors[:2])
    exact = nn.LayerNorm(norm.normalized_shape, eps=norm.eps).double()
    exact.load_state_dict(norm.state_dict())
    torch.manual_seed(SEED)
    mask = DropoutMask.draw(p)
    factors = apply_dropout_mask(mask, torch.ones(tensors[0].shape)).double()
    assert (factors.unique().tolist() == [1.0]) == (p == 0)
    out = exact(x * factors + residual)
    out.backward(tensors[2].double())
    return [out.detach(), x.grad, residual.grad, exact.weight.grad, exact.bias.grad]  # type: ignore[list-item]


@implementations
@pytest.mark.parametrize("dim", [16, 48, 384, 40])
@pytest.mark.parametrize("p", [0.0, 0.1])
def test_equals_the_formula(implementation: str, dim: int, p: float) -> None:
    tensors, norm = given(dim)
    for ours, exact in zip(values_and_gradients(tensors, norm, p), formula(tensors, norm, p), strict=True):
        assert exact.norm() > 0
        assert float((ours - exact).norm() / exact.norm()) < 1e-6


@implementations
def test_in_bfloat16_only_inputs_and_outputs_are_rounded(implementation: str) -> None:
    """Gradients of the weights, which are sums over tokens, have float32 precision."""
    tensors, norm = given(48, tokens=5000)
    found = values_and_gradients([tensor.bfloat16() for tensor in tensors], norm, 0.1)
    for index, (ours, exact) in enumerate(zip(found, formula(tensors, norm, 0.1), strict=True)):
        assert ours.dtype == (torch.bfloat16 if index < 3 else torch.float32)
        assert float((ours - exact).norm() / exact.norm()) < (3e-3 if index < 3 else 1e-5)


@implementations
@pytest.mark.parametrize(
    "architecture", ["bert", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("roberta", "xlm-roberta"))]
)
def test_a_backbone_gives_the_same_hidden_states(
    implementation: str, architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_tiny(tmp_path, architecture)
    encoder = Encoder.from_pretrained(folder)
    assert sum(isinstance(part, Output) for part in encoder.modules()) == 4  # two layers with two sublayers each
    monkeypatch.setattr("nearfar.encoder.encoder.use_fused", lambda module: None)
    before = Encoder.from_pretrained(folder)
    assert not any(isinstance(part, Output) for part in before.modules())
    texts = ["a man sees a dog", "red house", "no"]
    torch.testing.assert_close(
        torch.from_numpy(encoder.encode(texts)), torch.from_numpy(before.encode(texts)), rtol=0, atol=1e-6
    )
