"""Fitting BERT-flow: reference optimiser, training on anisotropic vectors, seeds, files, and invalid input."""

import math
import os

import numpy as np
import pytest
import torch

from nearfar.baselines.flow import FILE, Flow, Glow, fit_glow
from nearfar.types import NearfarError


def cone(rows: int, dim: int = 16, *, seed: int = 0) -> np.ndarray:
    """Return anisotropic Gaussian vectors far from 0, with cosines near 1, like those of an untuned BERT."""
    draw = np.random.default_rng(seed)
    mixing = np.random.default_rng(99).normal(size=(dim, dim)) * np.geomspace(2, 0.05, dim)
    return (3 + draw.normal(size=(rows, dim)) @ mixing.T).astype(np.float32)


def encode(texts) -> np.ndarray:
    """Texts are the numbers of rows."""
    return cone(400)[[int(text) for text in texts]]


TEXTS = [str(number) for number in range(400)]


def mean_cosine(x: np.ndarray) -> float:
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return float((x @ x.T)[~np.eye(len(x), dtype=bool)].mean())


def log_likelihood(glow: Glow, x: np.ndarray) -> float:
    return glow(torch.from_numpy(x))[1].mean().item()


@pytest.mark.long
@pytest.mark.parametrize("data_init", [True, False])
def test_training_increases_the_likelihood_and_reduces_anisotropy(data_init):
    train, held_out = cone(1000), cone(500, seed=1)
    short, _ = fit_glow(train[:64], data_init=data_init)
    fitted, losses = fit_glow(train, epochs=5, data_init=data_init)
    assert log_likelihood(fitted, held_out) > log_likelihood(short, held_out) + 3
    assert losses[-1] < losses[0]
    assert len(losses) == 5
    z = fitted(torch.from_numpy(held_out))[0].numpy()
    assert mean_cosine(held_out) > 0.5
    assert abs(mean_cosine(z)) < 0.2
    truth = np.cov(cone(20_000, seed=2).T)
    best = -0.5 * (16 * math.log(2 * math.pi * math.e) + np.linalg.slogdet(truth)[1])
    assert log_likelihood(fitted, held_out) < best + 0.5  # no flow beats the distribution that the data is from


def test_the_optimiser_matches_plain_loops():
    """Three steps of BERT's Adam, in plain loops; all rows in a batch, so that shuffling changes nothing."""
    x, rate, decay, clip = 0.1 * cone(20), 1e-2, 0.1, 1e5
    torch.manual_seed(5)
    glow = Glow(16).double()
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in glow.parameters()]
    start = [parameter.clone() for parameter in glow.parameters()]
    norms = []
    for _ in range(3):
        bits = -glow(torch.from_numpy(x).double())[1] / math.log(2) / 16
        gradients = torch.autograd.grad(bits[:10].mean() + bits[10:].mean(), list(glow.parameters()))
        norms.append(math.sqrt(sum(gradient.square().sum().item() for gradient in gradients)))
        with torch.no_grad():
            for parameter, gradient, (m, v) in zip(glow.parameters(), gradients, moments, strict=True):
                clipped = gradient * min(1, clip / norms[-1])
                m.copy_(0.9 * m + 0.1 * clipped)
                v.copy_(0.999 * v + 0.001 * clipped**2)
                parameter.sub_(rate * (m / (v.sqrt() + 1e-6) + decay * parameter))
    assert min(norms) < clip < max(norms)
    settings = {"learning_rate": rate, "weight_decay": decay, "clip": clip, "data_init": False, "seed": 5}
    fitted, _ = fit_glow(x, epochs=3, batch_size=20, **settings)
    for (name, expected), actual, before in zip(glow.named_parameters(), fitted.parameters(), start, strict=True):
        torch.testing.assert_close(actual.double(), expected.detach(), atol=1e-4, rtol=0, msg=name)
        assert (expected - before).abs().max() > 1e-3, name


def test_rows_are_shuffled_each_epoch_and_actnorm_initialised_once(monkeypatch):
    x = cone(70)
    x[:, 0] = np.arange(70)
    calls = []
    for name in ("forward", "initialise"):
        real = getattr(Glow, name)
        monkeypatch.setattr(
            Glow,
            name,
            lambda glow, rows, name=name, real=real: calls.append((name, rows[:, 0].tolist())) or real(glow, rows),
        )
    fit_glow(x, epochs=2, batch_size=32)
    first, *calls = calls
    assert first[0] == "initialise"
    assert [name for name, _ in calls] == 5 * ["forward"]  # one of them inside initialise
    batches = [rows for _, rows in calls]
    assert batches[0] == first[1] == batches[1]
    for epoch in (batches[1:3], batches[3:]):
        assert [len(rows) for rows in epoch] == [32, 32]
        assert len(set(epoch[0] + epoch[1])) == 64
        assert epoch[0] != sorted(epoch[0])
    assert batches[1] != batches[3]


@pytest.mark.long
def test_a_seed_gives_the_same_weights_and_keeps_the_global_generator():
    weights = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(weights))
        state = torch.get_rng_state()
        glow, _ = fit_glow(cone(200), seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        weights.append(torch.cat([parameter.flatten() for parameter in glow.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.allclose(weights[0], weights[2])


@pytest.fixture(scope="module")
def flow() -> Flow:
    return Flow.fit(encode, TEXTS)


@pytest.mark.long
def test_flow_is_an_encode(flow):
    z = flow(["3", "1", "3"])
    assert (z.dtype, z.shape) == (np.float32, (3, 16))
    assert np.array_equal(z[0], z[2])
    np.testing.assert_allclose(flow(["1"]), z[1:2], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(z, flow.glow(torch.from_numpy(encode(["3", "1", "3"])))[0].numpy(), rtol=1e-5)
    assert flow([]).shape == (0, 16)
    glow, losses = fit_glow(encode(TEXTS))
    assert losses == flow.losses
    assert all(map(torch.equal, glow.parameters(), flow.glow.parameters()))


def test_saved_and_loaded_it_gives_the_same(flow, tmp_path, monkeypatch):
    folder, odd_folder = tmp_path / "new" / "folder", tmp_path / "odd"
    flow.save(folder)
    odd = Flow(lambda texts: cone(len(texts), 13), Glow(13, levels=2, depth=1, width=4), ())
    odd.save(odd_folder)
    assert np.array_equal(Flow.load(odd_folder, odd.encode)(["a"]), odd(["a"]))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NearfarError, match="No space left on device"):
        odd.save(folder)
    loaded = Flow.load(folder, encode)
    assert np.array_equal(loaded(TEXTS), flow(TEXTS)), "a failed save keeps the previous flow"
    assert loaded.losses == flow.losses
    assert [file.name for file in folder.iterdir()] == [FILE]


def test_a_file_that_is_not_a_flow_raises(flow, tmp_path):
    with pytest.raises(NearfarError, match=r"has no flow\.safetensors"):
        Flow.load(tmp_path, encode)
    flow.save(tmp_path)
    content = (tmp_path / FILE).read_bytes()
    other_depth = content.replace(b'\\"depth\\": 3', b'\\"depth\\": 2')
    for damaged in (b"", content[:-10], other_depth, content.replace(b"flow", b"glow", 1)):
        assert damaged != content
        (tmp_path / FILE).write_bytes(damaged)
        with pytest.raises(NearfarError, match="is damaged or not a saved flow"):
            Flow.load(tmp_path, encode)


def test_an_encoder_of_another_dimension_raises(flow):
    for vectors, message in (
        (cone(1, 8), "has 8 dimensions, but the flow was fitted on 16"),
        (cone(2), "2 vectors for 1 texts"),
    ):
        with pytest.raises(NearfarError, match=message):
            Flow(lambda texts, vectors=vectors: vectors, flow.glow, ())(["a"])


def with_invalid_value(value: float) -> np.ndarray:
    x = cone(100)
    x[7, 3] = value
    return x


@pytest.mark.parametrize(
    ("embeddings", "settings", "message"),
    [
        (cone(63), {}, "batch_size is 64, but must be from 2 to the number of texts, 63"),
        (cone(0), {}, "at least 2 texts to fit on, not 0"),
        (cone(100), {"batch_size": 1}, "batch_size is 1"),
        (np.full((100, 16), 0.3), {}, "all 100 embeddings are equal"),
        (with_invalid_value(math.nan), {}, "text 7 .counted from 0. holds a NaN"),
        (with_invalid_value(math.inf), {}, "text 7 .counted from 0. holds a NaN or infinity"),
        (cone(100)[0], {}, r"\[texts, dim\], not \[16\]"),
        (cone(100, 4), {}, "choose fewer levels"),
        (cone(100), {"epochs": 0}, "epochs 0 must be at least 1"),
        (cone(100), {"learning_rate": math.nan}, "learning_rate nan"),
        (cone(100), {"clip": 0.0}, "clip 0.0 above 0"),
        (cone(100), {"weight_decay": -1.0}, "weight_decay -1.0 at least 0"),
        (cone(200), {"learning_rate": 1e3}, "loss is .* at step 2.*lower learning_rate, which is 1000"),
    ],
)
def test_invalid_input_raises(embeddings, settings, message):
    with pytest.raises(NearfarError, match=message):
        fit_glow(embeddings, **settings)
