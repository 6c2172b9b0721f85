"""The probes of an evaluation: from its settings, into its result file, and back for an evaluation like another one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nearfar.config.verbs import EvaluateConfig
from nearfar.evaluation.probe_settings import CLASSIFIER_SETTINGS, Probe, preset_probe
from nearfar.evaluation.results import ProbeSettings, TransferResults


def configured_probe(config: EvaluateConfig) -> Probe:
    """The probe that an evaluation uses for transfer tasks: its preset, and the single settings that override it.

    Raises:
        NearfarError: settings that exclude each other, such as an optimiser of the protocol ``exact``.
    """
    given = {name: getattr(config, f"probe_{name}") for name in CLASSIFIER_SETTINGS}
    return preset_probe(
        config.probe_preset,
        config.protocol,
        nhid=config.nhid,
        folds=config.folds,
        seed=config.probe_seed,
        fold_seed=config.fold_seed,
        **given,
    )


def recorded_probe(preset: str, probe: Probe) -> ProbeSettings:
    """The entry of a result file."""
    recorded = ProbeSettings(preset=preset, seed=probe.seed, fold_seed=probe.fold_seed)
    if probe.protocol == "exact":
        return recorded
    return replace(
        recorded,
        optimiser=probe.optimiser,
        learning_rate=probe.rate,
        batch_size=probe.batch_size,
        tenacity=probe.tenacity,
        epoch_size=probe.epoch_size,
        max_epochs=probe.max_epochs,
        l2=list(probe.l2),
    )


def probe_flags(transfer: TransferResults) -> Mapping[str, Any]:
    """The settings of :class:`nearfar.EvaluateConfig` that probe as a result file was probed."""
    flags: dict[str, Any] = {"protocol": transfer.protocol, "nhid": transfer.nhid, "folds": transfer.folds}
    used = transfer.probe
    if used is None:
        return flags
    flags |= {"probe_seed": used.seed, "fold_seed": used.fold_seed}
    return flags | {f"probe_{name}": getattr(used, name) for name in CLASSIFIER_SETTINGS}
