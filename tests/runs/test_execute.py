"""The optimiser of a run has the run's settings."""

from types import SimpleNamespace

from torch import nn

from nearfar import SclConfig
from nearfar.runs.execute import _optimiser


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
