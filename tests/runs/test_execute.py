"""The optimiser of a run has the run's settings."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch import nn

from nearfar import SclConfig
from nearfar.runs.execute import _optimiser, _replace
from tests.flushes import assert_flushed_before, record_flushes


def test_the_optimiser_has_the_settings_of_the_run() -> None:
    config = SclConfig(output="x", adam_epsilon=1e-6, beta2=0.9, learning_rate=1e-3, head_learning_rate=1e-2)
    encoder = nn.Linear(2, 2)
    job = SimpleNamespace(encoder=encoder, mixture=SimpleNamespace(heads=[nn.Linear(2, 3)]), rate_factors={})
    groups = _optimiser(config, job).param_groups  # type: ignore[arg-type]
    assert {(group["eps"], group["betas"]) for group in groups} == {(1e-6, (0.9, 0.9))}
    assert {group["lr"] for group in groups} == {1e-3, 1e-2}
    assert {group["eps"] for group in _optimiser(SclConfig(output="x"), job).param_groups} == {1e-8}  # type: ignore[arg-type]
    job.rate_factors = {encoder.weight: 0.5}
    assert {group["lr"] for group in _optimiser(config, job).param_groups} == {5e-4, 1e-3, 1e-2}  # type: ignore[arg-type]


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot flush a folder")
def test_a_model_is_flushed_before_it_replaces_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    events = record_flushes(monkeypatch)

    def save(folder: Path) -> None:
        (folder / "1_Pooling").mkdir(parents=True)
        (folder / "1_Pooling" / "config.json").write_text("{}")

    _replace(Path("model"), save)
    assert_flushed_before(events, Path("model"), ("model.new", "model"))
