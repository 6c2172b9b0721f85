"""Dropout by seed and index: rate, independence, gradient, equal masks."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from nearfar.encoder import dropout
from nearfar.encoder.dropout import Dropout, DropoutMask, drop, set_dropout
from nearfar.encoder.encoder import Encoder
from tests.encoder.kernel_helpers import needs_kernels
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
