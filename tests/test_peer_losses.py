"""studies/peers/losses.py: each loss of sentence-transformers trains on generated rows of its kind."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from nearfar.data.fingerprints import row_hashes
from nearfar.disk import read_seen
from nearfar.studies.papers import ENCODER, write_inputs
from tests.scripts import load_script

FILE = Path(__file__).parents[1] / "studies" / "peers" / "losses.py"
BY_DAY = ("mnrl", "cosent")
"""Triplets and scored pairs; the others run at night. Vectors of a teacher are in the tests below."""
SCORED = ("cosent", "angle", "cosine")


PEERS = load_script("studies/peers/losses.py")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("peers") / "inputs"
    write_inputs(folder)
    return folder / ENCODER


@pytest.mark.long
@pytest.mark.parametrize(
    "loss", [pytest.param(name, marks=[] if name in BY_DAY else pytest.mark.nightly) for name in PEERS.LOSSES]
)
def test_a_loss_trains(loss: str, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = "microworld:dev" if loss in SCORED else "microworld"
    words = (
        f"--model {start} --output {tmp_path} --loss {loss} --data {data} --evaluate-on microworld:dev --batch-size 8"
    )
    words += f" --precision fp32 --max-steps 2 --evaluate-every 1 --guide {start}"
    monkeypatch.setattr(sys, "argv", ["losses.py", *words.split()])
    PEERS.main()
    assert -100 <= json.loads((tmp_path / "numbers.json").read_text())["validation"] <= 100
    assert [step for step, _ in json.loads((tmp_path / "run.json").read_text())["history"]] == [1, 2]
    before = load_file(start / "model.safetensors")
    after = load_file(tmp_path / "model" / "model.safetensors")
    assert any(not torch.equal(value, after[name]) for name, value in before.items() if name in after)
    seen = read_seen(tmp_path / "model")
    assert seen is not None
    assert len(seen.trained_texts) > 8


def test_gradients_are_clipped_at_the_given_norm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By default at 1, as the library's own trainer does."""
    words = f"--model m --output {tmp_path} --loss distill-mse --data microworld --evaluate-on microworld:dev"
    for more, norm in (("", 1.0), (" --max-grad-norm 0.003", 0.003)):
        monkeypatch.setattr(sys, "argv", ["losses.py", *f"{words}{more}".split()])
        arguments = PEERS.training_arguments(str(tmp_path), PEERS.parse(), PEERS.LOSSES["distill-mse"].sampler)
        assert arguments.max_grad_norm == norm


@pytest.mark.long
def test_the_main_components_of_a_teacher_are_taught(start: Path) -> None:
    options = Namespace(data="microworld", limit=40, guide=str(start), loss="distill-mse", components=None)
    whole = np.stack(PEERS.taught(options)["label"])
    options.components = 3
    taught = np.stack(PEERS.taught(options)["label"])
    assert taught.shape == (40, 3)
    variances = np.linalg.svd(whole - whole.mean(0), compute_uv=False)[:3] ** 2
    np.testing.assert_allclose(np.square(taught - taught.mean(0)).sum(0), variances, rtol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize(
    "beside",
    [
        pytest.param(name, marks=[pytest.mark.nightly] if number else [])
        for number, name in enumerate(PEERS.SENTENCE_LOSSES)
    ],
)
def test_sentences_train_beside_pairs(
    beside: str, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of seen texts has both, and an epoch has the batches of both."""
    sentences = tmp_path / "sentences.txt"
    sentences.write_text("\n".join(f"the cat sees {number} green birds" for number in range(10)) + "\n")
    words = f"--model {start} --output {tmp_path} --loss mnrl-pairs --data microworld --evaluate-on microworld:dev"
    words += f" --limit 8 --batch-size 4 --precision fp32 --evaluate-every 1 --beside {sentences} --beside-limit 8"
    monkeypatch.setattr(sys, "argv", ["losses.py", *words.split(), "--beside-loss", beside])
    PEERS.main()
    assert len(json.loads((tmp_path / "run.json").read_text())["history"]) == 4
    seen = read_seen(tmp_path / "model")
    assert seen is not None
    texts, _ = row_hashes([(f"the cat sees {number} green birds",) for number in range(10)])
    assert [hashed in seen.trained_texts for hashed in texts] == [True] * 8 + [False] * 2


def test_tsdae_keeps_some_words() -> None:
    import random

    words = "a b c d e f g h i j".split()
    kept = [PEERS._delete_words(words, random.Random(seed)).split() for seed in range(200)]
    assert all(set(some) <= set(words) and some for some in kept)
    assert 3 < sum(map(len, kept)) / len(kept) < 5  # 40 percent
