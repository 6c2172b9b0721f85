"""The optimiser of a run has the run's settings."""

from torch import nn

from nearfar import SclConfig
from nearfar.runs.run import group_of
from nearfar.training.optimiser import OptimiserSettings, adamw


def settings_of(config: SclConfig) -> OptimiserSettings:
    return group_of(OptimiserSettings, config, epsilon=config.adam_epsilon)


def test_the_optimiser_has_the_settings_of_the_run() -> None:
    config = SclConfig(output="x", adam_epsilon=1e-6, beta2=0.9, learning_rate=1e-3, head_learning_rate=1e-2)
    encoder, head = nn.Linear(2, 2), nn.Linear(2, 3)
    groups = adamw(encoder, [head], settings_of(config)).param_groups
    assert {(group["eps"], group["betas"]) for group in groups} == {(1e-6, (0.9, 0.9))}
    assert {group["lr"] for group in groups} == {1e-3, 1e-2}
    plain = adamw(encoder, [head], settings_of(SclConfig(output="x"))).param_groups
    assert {group["eps"] for group in plain} == {1e-8}
    slowed = adamw(encoder, [head], settings_of(config), {encoder.weight: 0.5}).param_groups
    assert {group["lr"] for group in slowed} == {5e-4, 1e-3, 1e-2}
