"""studies/sentences.py: without additions it is the recipe for sentences alone; each addition is what it says."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import nearfar
from nearfar.studies.papers import ENCODER, write_inputs
from tests.scripts import load_script, run_here

FILE = Path(__file__).parents[1] / "studies" / "sentences.py"


ADDITIONS = load_script("studies/sentences.py")


def run(start: Path, output: Path, *words: object) -> dict[str, torch.Tensor]:
    """The weights after three steps, and a check that the script wrote what a study reads."""
    command = f"--model {start} --output {output} --data microworld --evaluate-on microworld:dev --limit 64"
    command += " --batch-size 8 --max-steps 3 --evaluate-every 3 --learning-rate 0.001 --precision fp32"
    made = run_here([sys.executable, FILE, *command.split(), *words])
    assert made.returncode == 0, made.stderr
    assert -100 <= json.loads((output / "numbers.json").read_text())["validation"] <= 100
    return load_file(output / "model" / "model.safetensors")


def differ(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return any(not torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.nightly
@pytest.mark.long
def test_each_addition_changes_the_training(tmp_path: Path) -> None:
    write_inputs(tmp_path / "inputs")
    start = tmp_path / "inputs" / ENCODER
    plain = run(start, tmp_path / "plain", "--pooling", "cls")
    settings = {"batch_size": 8, "max_steps": 3, "evaluate_every": 3, "learning_rate": 0.001, "precision": "fp32"}
    nearfar.train(
        "sg-opt1", model=start, data="microworld", evaluate_on="microworld:dev", limit=64, views="0-0", dropout=0.0,
        pooling="cls", output=tmp_path / "recipe", **settings,
    )  # fmt: skip
    assert not differ(load_file(tmp_path / "recipe" / "model" / "model.safetensors"), plain)

    for name, *words in (
        ("layers", "--layer-share", 0.5),
        ("decorrelation", "--decorrelation", 0.1),
        ("reconstruction", "--reconstruction", 1),
        ("neighbours", "--neighbours", 4),
        ("poolings", "--poolings", 1),
        ("dropout", "--dropout", 0.1),
        ("average", "--start-weight", 0.5),
    ):
        assert differ(run(start, tmp_path / name, "--pooling", "cls", *words), plain), name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--layer-share 1", "--layer-share 1.0: must be between 0 and 1"),
        ("--layer-share 0.5 --false-negative-margin 0", "does not go with --layer-share"),
        ("--neighbours 0", "--neighbours 0: must be at least 1"),
        ("--decorrelation -1", "--decorrelation -1.0: must be at least 0"),
    ],
)
def test_unusable_values_are_refused(
    words: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = f"sentences.py --model m --output o --data d --evaluate-on e {words}"
    monkeypatch.setattr(sys, "argv", command.split())
    with pytest.raises(SystemExit):
        ADDITIONS.parse()
    assert message in capsys.readouterr().err


def test_the_mixture_starts_at_the_given_share_and_is_trained() -> None:
    mixture = ADDITIONS.LayerMixture(3, share=0.8)
    views = torch.randn(5, 3, 7, generator=torch.Generator().manual_seed(1))
    mixed = mixture(views)
    expected = 0.8 * views[:, 0] + 0.1 * views[:, 1] + 0.1 * views[:, 2]
    torch.testing.assert_close(mixed[:, 0], expected)
    mixed.square().sum().backward()
    assert mixture.logits.grad is not None
    assert mixture.logits.grad.abs().min() > 0


def test_decorrelation_is_the_sum_of_squared_correlations() -> None:
    vectors = torch.randn(20, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    correlations = np.corrcoef(vectors.numpy().T)
    expected = sum(correlations[i, j] ** 2 for i in range(4) for j in range(4) if i != j) / 4
    assert ADDITIONS.decorrelation_loss(vectors).item() == pytest.approx(expected, rel=1e-9)
    assert ADDITIONS.decorrelation_loss(torch.ones(3, 4)).item() == 0  # no variance, no correlation


def test_batches_hold_groups_of_neighbours_and_every_row_once() -> None:
    """Rows 2k and 2k + 1 have the same direction, up to a little: with groups of two they stay together."""
    directions = np.eye(8, dtype=np.float32)
    vectors = np.repeat(directions, 2, axis=0)
    vectors[1::2] += 0.01
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    batches = ADDITIONS.NeighbourBatches([f"text {row}" for row in range(16)], vectors, batch_size=6, size=2, seed=1)
    epochs = [[batch.rows for batch in batches.epoch(number)] for number in range(2)]
    assert epochs[0] != epochs[1]
    assert epochs[0] == [batch.rows for batch in batches.epoch(0)]
    assert [batch.rows for batch in batches.epoch(0, start=1)] == epochs[0][1:]
    for found in epochs:
        assert [len(rows) for rows in found] == [6, 10]
        assert batches.total_steps(1) == len(found)
        assert sorted(row for rows in found for row in rows) == list(range(16))
        for rows in found:
            assert all(rows[place] // 2 == rows[place + 1] // 2 for place in range(0, len(rows), 2))
    (first, *_) = batches.epoch(0)
    assert first.sentences == [f"text {row}" for row in first.rows]
