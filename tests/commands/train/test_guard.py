"""The guard of a run: which average of trained weights and start's is kept, by judged sets of another kind."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from nearfar import Encoder, NearfarError, train
from nearfar.commands.train import TrainResult
from nearfar.commands.train.guard import SHARES, Guard
from tests.method_configs import config as method_config
from tests.tiny import sentences

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def judged(folder: Path) -> Path:
    """Pairs whose gold scores are the start's own cosines, so that every other model is worse on them."""
    model = method_config("scl", folder, output="unused").model
    texts = sentences(120, seed=5)
    vectors = Encoder.from_pretrained(model).encode(texts, normalize=True)
    cosines = (vectors[0::2] * vectors[1::2]).sum(1)
    assert len(np.unique(cosines)) > 50
    rows = zip(cosines, texts[0::2], texts[1::2], strict=True)
    file = folder / "judged.tsv"
    lines = ["score\tsentence1\tsentence2", *(f"{score:.8f}\t{first}\t{second}" for score, first, second in rows)]
    file.write_text("\n".join(lines) + "\n")
    return file


def guarded(folder: Path, output: Path, *guard: Path, **settings: Any) -> TrainResult:
    settings = {
        "keep": "last",
        "learning_rate": 3e-2,
        "precision": "fp32",
        "evaluate_on": None,
        "hold_out": 0,
        **settings,
    }
    return train(method_config("scl", folder, output=str(output), guard=tuple(map(str, guard)), **settings))


def weights(model: Path | str) -> dict[str, torch.Tensor]:
    return load_file(Path(model) / "model.safetensors")


def test_all_averages_are_refused_and_the_start_is_kept(folder: Path, judged: Path, tmp_path: Path) -> None:
    start = method_config("scl", folder, output="unused").model
    refused = guarded(folder, tmp_path / "refused", judged, guard_margin=0.0)
    assert [one.start_share for one in refused.tried] == list(SHARES)
    assert not any(one.kept for one in refused.tried)
    assert refused.model_is_start
    before, after = weights(start), weights(refused.model)
    assert all(torch.equal(after[name], before[name]) for name in after if name in before)
    no_gain = guarded(folder, tmp_path / "no-gain", judged, evaluate_on="microworld:dev")  # on dev rows
    assert no_gain.best_score is not None
    assert no_gain.best_score <= (no_gain.start_score or 0)
    assert no_gain.model_is_start
    assert [(one.start_share, one.kept) for one in no_gain.tried] == [(0.0, False)]
    wide = guarded(folder, tmp_path / "wide", judged, guard_margin=100.0)  # its interval is all below zero
    assert not wide.tried[0].kept
    assert wide.tried[0].differences == refused.tried[0].differences


def test_the_first_average_within_the_margin_is_kept(
    folder: Path, judged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Guard, "passes", lambda self, result: all(one.difference >= -self.margin for one in result.tasks.values())
    )
    free = guarded(folder, tmp_path / "free")
    assert free.guard is None
    assert not free.tried
    refused = guarded(folder, tmp_path / "refused", judged, guard_margin=0.0)
    losses = [-one.differences[str(judged)] for one in refused.tried]
    assert losses[0] > losses[-1] > 0
    margin = max(loss for loss in losses if loss < losses[0]) + 1e-6
    kept = guarded(folder, tmp_path / "kept", judged, guard_margin=margin)
    share, before = kept.tried[-1].start_share, weights(method_config("scl", folder, output="unused").model)
    assert kept.tried[-1].kept
    assert share > 0
    trained, after = weights(free.model), weights(kept.model)
    for name in set(after) & set(before):
        average = share * before[name] + (1 - share) * trained[name]
        torch.testing.assert_close(after[name], average, rtol=0, atol=1e-6)
    assert kept.guard is not None
    assert kept.guard.tasks[str(judged)].difference == kept.tried[-1].differences[str(judged)]
    record = json.loads((tmp_path / "kept" / "run.json").read_text())
    assert [one["start_share"] for one in record["guard"]] == list(SHARES[: len(kept.tried)])
    card = (kept.model / "README.md").read_text()
    assert f"| {judged.name} |" in card.replace("\\", "")
    assert f"Kept: the average with {kept.tried[-1].start_share:.0%} of the start" in card
    assert str(judged) not in card
    assert "kept weights: those before training, as the guard refused" in (refused.model / "README.md").read_text()


def test_a_set_that_is_missing_is_named_before_training(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NearfarError, match=r"--guard: .*nothing\.tsv"):
        guarded(folder, tmp_path / "run", tmp_path / "nothing.tsv")
    assert not (tmp_path / "run" / "config.toml").exists()
    with pytest.raises(NearfarError, match="--guard and --keep-layers"):
        guarded(folder, tmp_path / "run", tmp_path / "nothing.tsv", keep_layers="1")
