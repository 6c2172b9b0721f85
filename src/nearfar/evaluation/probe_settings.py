"""The settings of a probe, and the presets of published results.

============  =====================================================================================================
``senteval``  those of SentEval's published results and SimCSE's: logistic regression, 10 folds, Adam, batches of 64,
              tenacity 5, a check every 4 epochs
``liao``      those in the code of Liao 2021, SentEval's fast settings: 5 folds, RMSprop, batches of 128, tenacity 3, a
              check every 2 epochs. SimCSE's authors use them during training
``kim``       those of Kim et al. 2021 (Table 9): ``senteval`` with 50 hidden units
============  =====================================================================================================

In SentEval one seed sets the classifiers and the folds of TREC and MRPC, and the folds of MR, CR, SUBJ and MPQA always
have seed 1111. Here the two are separate: ``seed`` is the classifiers', ``fold_seed`` that of all folds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from nearfar.types import NearfarError

Protocol: TypeAlias = Literal["senteval", "exact"]
Optimiser: TypeAlias = Literal["adam", "rmsprop"]
L2 = (1e-5, 1e-4, 1e-3, 1e-2)
LEARNING_RATES: Mapping[Optimiser, float] = {"adam": 1e-3, "rmsprop": 1e-2}
"""The default learning rate of each optimiser, that of PyTorch."""
CLASSIFIER_SETTINGS = ("optimiser", "learning_rate", "batch_size", "tenacity", "epoch_size", "max_epochs", "l2")
"""The settings of SentEval's classifier, which the protocol ``exact`` does not have."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The settings of a probe; the defaults are those of SentEval's published results."""

    protocol: Protocol = "senteval"
    nhid: int = 0
    """Hidden units of SentEval's classifier; 0 is logistic regression."""
    folds: int = 10
    seed: int = 1111
    """Seed of the classifiers: initial weights, held-out rows and minibatches."""
    fold_seed: int = 1111
    """Seed of the folds."""
    optimiser: Optimiser = "adam"
    learning_rate: float | None = None
    """None is the optimiser's default (:data:`LEARNING_RATES`)."""
    batch_size: int = 64
    tenacity: int = 5
    """Number of checks without improvement before the one that stops; the count is never reset."""
    epoch_size: int = 4
    """Epochs between checks of early stopping."""
    max_epochs: int = 200
    """No check starts after this number of epochs."""
    l2: tuple[float, ...] = L2
    """The penalties to choose from; a tie goes to the first."""

    @property
    def rate(self) -> float:
        """The learning rate."""
        return LEARNING_RATES[self.optimiser] if self.learning_rate is None else self.learning_rate


PRESETS: Mapping[str, Probe] = {
    "senteval": Probe(),
    "liao": Probe(folds=5, optimiser="rmsprop", batch_size=128, tenacity=3, epoch_size=2),
    "kim": Probe(nhid=50),
}


def preset_probe(preset: str, protocol: Protocol = "senteval", **given: Any) -> Probe:
    """The probe of a preset, with the settings that are ``given`` and not None in place of the preset's.

    Args:
        preset: ``senteval``, ``liao`` or ``kim``.
        protocol: with ``exact``, only the preset's number of folds is used.
        given: fields of :class:`Probe`.

    Raises:
        NearfarError: a setting of SentEval's classifier with ``exact``; no penalty, or the same one twice.
    """
    given = {name: value for name, value in given.items() if value is not None}
    base = PRESETS[preset]
    if protocol == "exact":
        for name in CLASSIFIER_SETTINGS:
            if name in given:
                raise NearfarError(
                    f"--probe-{name.replace('_', '-')} is a setting of SentEval's classifier; remove it, or use "
                    "--protocol senteval."
                )
        base = Probe(protocol="exact", folds=base.folds)
    probe = replace(base, **given)
    if probe.nhid and protocol == "exact":
        raise NearfarError(f"nhid {probe.nhid}: the protocol exact is logistic regression, without hidden units.")
    if not probe.l2 or len(set(probe.l2)) < len(probe.l2):
        listed = ", ".join(f"{penalty:g}" for penalty in probe.l2) or "(none)"
        raise NearfarError(f"l2 {listed}: must be penalties of 0 or more, each once.")
    return probe
