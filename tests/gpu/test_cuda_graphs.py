"""CUDA graphs of encoder and guide: values, gradients and dropout as without them, and what they leave out.

Without a GPU, what would be recorded is computed again: all else is the same.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from nearfar import Encoder, NearfarError
from nearfar.encoder import cuda_graphs
from nearfar.encoder.cuda_graphs import COMPILE_VARIABLE, COMPILED_FROM, CompiledLayers, HalfWeights, uses_graphs
from nearfar.encoder.dropout import set_dropout
from nearfar.encoder.frozen import Guide
from nearfar.encoder.training_encoder import TrainingEncoder
from nearfar.runtime import gpu
from nearfar.training.gradients import seed_rng
from tests.gpu.devices import GPU
from tests.same_gradients import assert_same_gradients, gradients_of
from tests.tiny import ARCHITECTURES, DECODERS, PADDED, save_tiny, sentences

pytestmark = pytest.mark.long

RAGGED = [architecture for architecture in ARCHITECTURES if architecture not in PADDED]
SHORT = sentences(20, longest=12)
LONG = [*sentences(30, seed=1, longest=12), *sentences(5, seed=2, longest=40)]


def opened(
    folder: Path,
    device: str,
    architecture: str = "bert",
    *,
    dropout: float = 0.0,
    graphs: bool = True,
    bf16: bool = False,
    steps: int = 0,
) -> TrainingEncoder:
    encoder = Encoder.from_pretrained(save_tiny(folder, architecture), device=device).train()
    set_dropout(encoder.backbone, dropout)
    alone: Any = {"max_length": None, "broadcast_from_first": lambda compute: compute()}
    training = TrainingEncoder(encoder, bf16=bf16, cuda_graphs=graphs, **alone)
    training.read([SHORT, LONG])
    training.expect(steps=steps)
    return training


def backward(training: TrainingEncoder, texts: Sequence[str], *, seed: int = 0) -> torch.Tensor:
    """Embed, add the gradient of a weighted sum to that of the weights, and return the embeddings."""
    seed_rng(seed)
    output = training.embed(texts)
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(len(texts))).to(output.device)
    (output * weights).sum().backward()
    return output.detach()


def gradients(training: TrainingEncoder) -> dict[str, torch.Tensor]:
    return gradients_of(training.encoder)


def assert_random_numbers_work() -> None:
    """A failed recording can leave the generator in a state in which the next dropout raises an error."""
    seed_rng(0)
    first = torch.nn.functional.dropout(torch.ones(100, device="cuda"), 0.5)
    seed_rng(0)
    assert torch.equal(torch.nn.functional.dropout(torch.ones(100, device="cuda"), 0.5), first)
    assert 0 < int(first.count_nonzero()) < 100


def test_the_environment_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path), device="cpu")
    assert not uses_graphs(encoder)
    monkeypatch.setenv(gpu.VARIABLE, "yes")
    with pytest.raises(NearfarError, match="NEARFAR_CUDA_GRAPHS=yes: must be 0 or 1"):
        uses_graphs(encoder)
    monkeypatch.setenv(COMPILE_VARIABLE, "yes")
    with pytest.raises(NearfarError, match="NEARFAR_COMPILE=yes: must be 0 or 1"):
        opened(tmp_path, "cpu", graphs=False)


@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("architecture", RAGGED)
def test_values_and_gradients(device: str, architecture: str, bf16: bool, tmp_path: Path) -> None:
    """Two batches are summed in one step; the step after starts from zero."""
    ours, plain = (opened(tmp_path, device, architecture, bf16=bf16, graphs=graphs) for graphs in (True, False))
    assert ours.graphs is not None
    assert plain.graphs is None
    for texts in ((SHORT, LONG), (LONG,)):
        for training in (ours, plain):
            training.encoder.zero_grad()
        for batch in texts:
            found, expected = backward(ours, batch), backward(plain, batch)
            torch.testing.assert_close(found, expected, atol=3e-2 if bf16 else 1e-5, rtol=0)
        assert_same_gradients(gradients(ours), gradients(plain), tolerance=0.1 if bf16 else 1e-4)
    assert len(ours.graphs.recordings) == 2


@pytest.mark.parametrize("architecture", RAGGED)
def test_copies_of_weights_change_no_bit(device: str, architecture: str, tmp_path: Path) -> None:
    """In bfloat16, against graphs in which autocast casts each weight."""
    copied, cast = (opened(tmp_path, device, architecture, bf16=True) for _ in range(2))
    assert cast.graphs is not None
    cast.graphs._half = None
    for texts in (SHORT, LONG):
        assert torch.equal(backward(copied, texts), backward(cast, texts))
    assert copied.graphs is not None
    assert len(copied.graphs._half.copies) > 5
    for name, gradient in gradients(copied).items():
        assert torch.equal(gradient, gradients(cast)[name]), name
    assert all(parameter.dtype == torch.float32 for parameter in copied.encoder.parameters())


@pytest.mark.parametrize(
    ("architecture", "backend", "bf16"),
    [
        ("bert", "eager", True),
        *(pytest.param(name, "eager", False, marks=pytest.mark.nightly) for name in (*RAGGED, *DECODERS)),
        *(pytest.param("bert", "inductor", bf16, marks=pytest.mark.nightly) for bf16 in (False, True)),
    ],
)
def test_compiled_layers(
    device: str, architecture: str, backend: str, bf16: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one piece for all architectures; ``eager`` is the compiler's first half, which finds what it cannot do."""
    compiled = torch.compile
    monkeypatch.setattr(torch, "compile", lambda forward, **how: compiled(forward, backend=backend, **how))
    torch._dynamo.reset()
    ours, plain = (opened(tmp_path, device, architecture, bf16=bf16, steps=n) for n in (COMPILED_FROM, 0))
    for texts in (SHORT, LONG):
        found, expected = backward(ours, texts), backward(plain, texts)
        torch.testing.assert_close(found, expected, atol=3e-2 if bf16 else 1e-5, rtol=0)
    assert_same_gradients(gradients(ours), gradients(plain), tolerance=0.1 if bf16 else 1e-4)
    assert ours.graphs is not None
    assert plain.graphs is not None
    assert isinstance(ours.graphs._compiled, CompiledLayers)  # nothing failed
    assert plain.graphs._compiled is None
    assert not any("forward" in vars(module) for module in ours.encoder.modules())
    torch._dynamo.reset()


def test_layers_that_cannot_be_compiled(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> torch.Tensor:
        raise ValueError("no compiler was found")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: fails)
    monkeypatch.setenv(COMPILE_VARIABLE, "1")
    ours, plain = (opened(tmp_path, device, graphs=graphs) for graphs in (True, False))
    with pytest.warns(UserWarning, match="cannot be compiled .*no compiler was found.*Training is correct") as warned:
        found = [backward(ours, texts) for texts in (SHORT, LONG)]
    assert len(warned) == 1
    torch.testing.assert_close(found, [backward(plain, texts) for texts in (SHORT, LONG)], atol=1e-5, rtol=0)
    assert_same_gradients(gradients(ours), gradients(plain), tolerance=1e-4)


def test_weights_in_bfloat16_have_no_copies() -> None:
    layer = torch.nn.Linear(3, 2).bfloat16()
    weights, half = list(layer.parameters()), HalfWeights(layer)
    with half.in_place():
        assert all(now is before for now, before in zip(layer.parameters(), weights, strict=True))
    assert not half.copies


def test_later_weights_are_used(device: str, tmp_path: Path) -> None:
    ours, plain, fresh = (opened(tmp_path, device, graphs=graphs) for graphs in (True, False, False))
    for training in (ours, plain):
        optimiser = torch.optim.AdamW(training.encoder.parameters(), lr=1e-2, fused=True)
        for _ in range(3):
            backward(training, LONG)
            optimiser.step()
            optimiser.zero_grad()
    with torch.no_grad():
        first, second, untrained = (training.embed(SHORT) for training in (ours, plain, fresh))
    torch.testing.assert_close(first, second, atol=1e-3, rtol=0)
    assert float((second - untrained).abs().max()) > 0.1


def test_dropout_follows_the_seed_with_and_without_gradient(device: str, tmp_path: Path) -> None:
    """A recording changes no random numbers either: the first call equals the later ones."""
    training = opened(tmp_path, device, dropout=0.3)
    first = backward(training, LONG, seed=1)
    assert torch.equal(backward(training, LONG, seed=1), first)
    with torch.no_grad():
        seed_rng(1)
        assert torch.equal(training.embed(LONG), first)
    after = torch.randn(1, device=device)
    assert not torch.equal(backward(training, LONG, seed=2), first)
    fresh = opened(tmp_path, device, dropout=0.3)
    with torch.no_grad():
        seed_rng(1)
        assert torch.equal(fresh.embed(LONG), first)
    assert torch.equal(torch.randn(1, device=device), after)
    training.encoder.eval()
    with torch.no_grad():
        assert torch.equal(training.embed(LONG), training.embed(LONG))


def test_the_gradient_has_the_dropout_of_the_forward_pass(device: str, tmp_path: Path) -> None:
    """The gradient along a direction equals the difference of the outputs on both sides, with the same seed."""
    training = opened(tmp_path, device, dropout=0.3)
    weight = training.encoder.backbone.encoder.layer[0].intermediate.dense.weight
    direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)).to(device)
    generator = torch.Generator().manual_seed(len(LONG))
    weights = torch.randn(len(LONG), training.encoder.dim, generator=generator).to(device)
    backward(training, LONG, seed=3)
    slope = float((weight.grad * direction).sum())
    sides = []
    with torch.no_grad():
        for sign in (1, -1):
            weight.add_(sign * 1e-3 * direction)
            seed_rng(3)
            sides.append(float((training.embed(LONG) * weights).double().sum()))
            weight.sub_(sign * 1e-3 * direction)
    assert (sides[0] - sides[1]) / 2e-3 == pytest.approx(slope, rel=2e-2, abs=1e-2)


def test_a_second_batch_before_the_backward_pass(device: str, tmp_path: Path) -> None:
    ours, plain = (opened(tmp_path, device, graphs=graphs) for graphs in (True, False))
    for training in (ours, plain):
        (training.embed(SHORT).square().sum() + training.embed(LONG).square().sum()).backward()
    assert_same_gradients(gradients(ours), gradients(plain), tolerance=1e-4)
    ours.embed(SHORT)  # without a backward pass
    backward(ours, LONG)
    assert len(ours.graphs.recordings) == 2  # the pass above no longer waits


def test_the_other_gradients_of_a_step_are_kept(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, plain = (opened(tmp_path, device, graphs=graphs) for graphs in (True, False))
    monkeypatch.setattr(cuda_graphs, "MAX_TOKENS", sum(ours.lengths(SHORT)) + 65)  # less than LONG has
    for batch in (LONG, SHORT, LONG):
        backward(ours, batch)
        backward(plain, batch)
    assert len(ours.graphs.recordings) == 1
    assert_same_gradients(gradients(ours), gradients(plain), tolerance=1e-4)


def test_frozen_weights_get_no_gradient(device: str, tmp_path: Path) -> None:
    training = opened(tmp_path, device)
    frozen = training.encoder.backbone.embeddings.requires_grad_(False)
    backward(training, SHORT)
    assert all(parameter.grad is None for parameter in frozen.parameters())
    assert len(gradients(training)) > 10


def test_few_graphs_are_kept(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "MAX_GRAPHS", 2)
    training, plain = opened(tmp_path, device), opened(tmp_path, device, graphs=False)
    for texts in (SHORT, LONG, SHORT[:4], LONG, SHORT[:4], SHORT):
        torch.testing.assert_close(backward(training, texts), backward(plain, texts), atol=1e-5, rtol=0)
    assert len(training.graphs.recordings) == 2
    assert_same_gradients(gradients(training), gradients(plain), tolerance=1e-4)


@GPU[0]
@GPU[1]
def test_a_recording_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that waits for the GPU cannot be recorded; training goes on without graphs."""
    ours, plain = (opened(tmp_path, "cuda", graphs=graphs) for graphs in (True, False))
    embed_batch = ours.encoder.embed_batch

    def waits(batch: Any) -> torch.Tensor:
        output = embed_batch(batch)
        assert float(output.detach().abs().sum()) > 0
        return output

    monkeypatch.setattr(ours.graphs, "_compute", waits)
    with pytest.warns(UserWarning, match="cannot be recorded as a CUDA graph"):
        backward(ours, LONG)
    assert_random_numbers_work()
    backward(ours, SHORT)
    for texts in (LONG, SHORT):
        backward(plain, texts)
    assert_same_gradients(gradients(ours), gradients(plain), tolerance=1e-4)


@pytest.mark.parametrize(
    ("layers", "pooling", "bf16"),
    [(None, "max", False), (None, "mean", True), ((0, 0), "mean", False), ((1, 1), "max", True)],
)
def test_views_of_a_guide(
    device: str, layers: tuple[int, int] | None, pooling: Literal["max", "mean"], bf16: bool, tmp_path: Path
) -> None:
    ours, plain = (opened(tmp_path, device, bf16=bf16, graphs=graphs) for graphs in (True, False))
    encoder = ours.encoder
    guide = Guide(encoder.backbone, encoder.route, pooling=pooling, layers=layers)
    first, second = ours.views(guide), plain.views(guide)
    for texts in (SHORT, LONG, SHORT[:3], LONG):
        found, expected = first(texts), second(texts)
        assert found.dtype == torch.float32
        assert not found.requires_grad
        torch.testing.assert_close(found, expected, atol=0.1 if bf16 else 1e-5, rtol=0)
    kept = first(SHORT)
    copied = kept.clone()
    first(SHORT[::-1])
    assert torch.equal(kept, copied)
