"""The runs of a fine-tuning study: every combination of setting, variant and sample."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from nearfar.commands.finetune.rows import NOISES, apply_noise, draw_sample
from nearfar.config import FinetuneConfig, FinetuneStudyConfig, split_list
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.data.classification import ClassificationTask

CE, SCL, MSE = "CE", "CE+SCL", "MSE"
"""Variants: cross-entropy, cross-entropy with SCL, and, for rows with scores, the mean squared error."""
SAMPLES = 10
"""Default number of samples for each setting (Gunel et al. 2021)."""


class PlannedRun(NamedTuple):
    """One run of a study."""

    setting: str
    variant: str
    sample: int
    config: FinetuneConfig

    @property
    def key(self) -> tuple[str, str, int]:
        """Identifies the run within its study."""
        return self.setting, self.variant, self.sample


def plan_runs(config: FinetuneStudyConfig, *, scores: bool = False) -> list[PlannedRun]:
    """All runs of a study, ordered by sample, then setting, then variant.

    Rows with ``scores`` have one variant and no grid, because SCL needs labels.

    Raises:
        NearfarError: a setting is given twice, or does not fit rows with scores.
    """
    single = config.single
    cells = []
    for sample in range(1, (config.samples or SAMPLES) + 1):
        for setting, of_setting in _settings(config, replace(single, sample_seed=sample, seed=sample)):
            cells += [
                PlannedRun(setting, name, sample, one) for name, one in _variants(config, of_setting, scores=scores)
            ]
    if len({one.key for one in cells}) < len(cells):
        raise NearfarError("--noises, --scl-weights and --temperatures: give each setting once.")
    return cells


def check_rows(cells: list[PlannedRun], base: "ClassificationTask") -> None:
    """Raise before the first run if a sample cannot be drawn or a text has no back-translation."""
    seen = set()
    for one in cells:
        config = one.config
        what = (config.sample_size, config.sample_size and one.sample, config.noise, config.noise_rate)
        # Generated noise applies to every sample; a file of back-translations may lack the rows of some.
        if what not in seen and (one.sample == 1 or config.noise not in ("none", *NOISES)):
            seen.add(what)
            apply_noise(config, draw_sample(config, base))


def _settings(config: FinetuneStudyConfig, single: FinetuneConfig) -> Iterator[tuple[str, FinetuneConfig]]:
    kind = "balanced" if config.sample_balanced else "proportional"
    sizes: list[int | None] = [int(value) for value in split_list(config.few_shot)]
    noises: list[str | None] = [*split_list(config.noises)]
    batches = [int(value) for value in split_list(config.batch_sizes)]
    for size in sizes or [single.sample_size]:
        for noise in noises or [None]:
            for batch in batches or [single.batch_size]:
                one = replace(single, sample_size=size, batch_size=batch)
                parts = [f"{size} rows, {kind}" if size else "all rows"]
                if noise is not None:
                    name, _, rate = noise.rpartition(":")
                    try:
                        one = replace(one, noise=name or noise, noise_rate=float(rate) if name else one.noise_rate)
                    except ValueError:
                        raise NearfarError(
                            f"--noises {noise}: must be KIND:RATE, as in word-dropout:0.1, or the name of a file of "
                            "back-translations, as in bt.tsv."
                        ) from None
                if one.noise != "none":
                    added = " added" if one.noise_mode == "add" else ""
                    parts.append((noise or f"{one.noise}:{one.noise_rate:g}") + added)
                if config.batch_sizes:
                    parts.append(f"batch {batch}")
                yield ", ".join(parts), one


def _variants(config: FinetuneStudyConfig, one: FinetuneConfig, *, scores: bool) -> list[tuple[str, FinetuneConfig]]:
    weights = [float(value) for value in split_list(config.scl_weights)] or [one.scl_weight]
    temperatures = [float(value) for value in split_list(config.temperatures)] or [one.temperature]
    start = config.scl_model or one.model
    if scores:
        if config.scl_weights or config.temperatures or config.scl_model:
            raise NearfarError(
                "--scl-weights, --temperatures, --scl-model: SCL needs labels, but these rows have scores."
            )
        return [(MSE, one)]
    if config.scl_weights or config.temperatures:
        return [
            (
                f"lambda {weight:g}, temperature {temperature:g}",
                replace(one, scl_weight=weight, temperature=temperature, model=start if weight else one.model),
            )
            for weight in weights
            for temperature in temperatures
        ]
    without = (CE, replace(one, scl_weight=0.0))
    return [without, (SCL, replace(one, model=start))] if one.scl_weight else [without]
