"""Settings of fine-tuning: a single run, and a study of many runs."""

import math
from dataclasses import dataclass, fields
from typing import Literal

from nearfar.config.bounds import (
    AtLeastTwo,
    BelowOne,
    Count,
    Epochs,
    File,
    Fraction,
    LearningRate,
    Positive,
    Runs,
    Seed,
)
from nearfar.config.training import RunConfig
from nearfar.config.values import InvalidValueError, field_types, flag, format_text, format_value
from nearfar.types import NearfarError, Splits

MAX_AXIS_VALUES = 100
"""Maximum number of values on one axis of a study."""


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(RunConfig):
    """Fine-tune a classifier by cross-entropy and supervised contrastive learning (Gunel et al. 2021)."""

    task: File = "sst2"
    """sst2, cola, mrpc, mrpc-glue, rte, qnli, mnli, stsb (a regression), amazon2, yelp2; or your own labelled file."""
    splits: Splits = "auto"
    """Where validation and test rows come from. few-shot: one half of GLUE's validation set is the test set, rows of
    the other half choose the step. full: GLUE's validation set is the test set; training rows, as many, choose the
    step. held-out: the same, but VALIDATION_ROWS training rows. 10-90: the first 10% of GLUE's validation set choose
    the step, the others are the test set. auto, for GLUE tasks: few-shot with a sample of rows, else full; for all
    other rows: held-out."""
    validation: File | None = None
    """File of validation rows, which choose the best step; by default rows as SPLITS says."""
    test: File | None = None
    """File of test rows; by default those of SPLITS, or a fifth of your own file."""
    text_columns: tuple[str, ...] = ()
    """One or two columns with the texts of a file; by default text, or sentence1 and sentence2."""
    label_column: str = "label"
    """Column of a file with the labels or scores."""
    validation_rows: AtLeastTwo | None = None
    """Number of validation rows, in the labels' proportions; by default 500, and with full splits as many as test rows.
    """
    metric: Literal["accuracy", "f1", "matthews", "pearson", "spearman"] | None = None
    """Metric on the validation rows that chooses the best step; by default Matthews correlation for cola, Pearson
    correlation for scores, and accuracy for all other tasks."""
    scl_weight: Fraction = 0.9
    """Lambda in the loss (1 - lambda) * cross-entropy + lambda * SCL; 0 means cross-entropy only."""
    temperature: Positive = 0.3
    """Temperature of SCL."""
    dropout: BelowOne | None = None
    """Dropout probability; by default the model's own, 0.1 in BERT and RoBERTa."""
    sample_size: AtLeastTwo | None = None
    """Few-shot: train on a random sample of this number of rows; by default on all rows."""
    sample_seed: Seed = 1
    """Seed of the sample."""
    sample_balanced: bool = True
    """Sample the same number of rows for each label; otherwise in the labels' proportions."""
    noise: File = "none"
    """Noise in the training texts: word-dropout, word-swap or characters, or a file of back-translations to use."""
    noise_rate: Fraction = 0.1
    """Fraction of words or characters that the noise changes."""
    noise_mode: Literal["replace", "add"] = "replace"
    """replace trains on the noisy texts in place of the originals; add trains on both, twice the number of rows."""
    batch_size: Count = 16
    """Batch size per process."""
    epochs: Epochs = 3
    """Number of passes over the training rows."""
    learning_rate: LearningRate = 1e-5
    """Peak learning rate (1e-5 in the paper)."""
    balanced: bool = False
    """Balance each batch: the same number of rows for each label."""

    def __post_init__(self) -> None:
        """Check all values and their combinations."""
        super().__post_init__()
        if self.validation is not None and self.splits not in ("auto", "held-out"):
            raise NearfarError(
                f"--splits {self.splits} and --validation: each chooses the validation rows; give one of them."
            )
        if self.validation_rows is not None and self.splits == "10-90":
            raise NearfarError("--validation-rows: --splits 10-90 sets the number of validation rows; leave one out.")


@dataclass(frozen=True, kw_only=True)
class FinetuneStudyConfig(FinetuneConfig):
    """Fine-tune a classifier by cross-entropy and supervised contrastive learning (Gunel et al. 2021).

    With any of --few-shot, --noises, --batch-sizes, --scl-weights, --temperatures, --samples, --scl-model it runs a
    study: each setting with SAMPLES samples, with cross-entropy only and with SCL on the same samples, and a test of
    the difference.
    """

    few_shot: str | None = None
    """Study: sizes of the training samples, as in 20,100,1000."""
    noises: str | None = None
    """Study: noises in the training texts, as in none,word-dropout:0.1,characters:0.05,translations.tsv."""
    batch_sizes: str | None = None
    """Study: batch sizes, as in 16,64,256; also measures updates per second."""
    scl_weights: str | None = None
    """Study: grid of lambda, as in 0.1,0.5,0.9; the best is chosen on the validation rows."""
    temperatures: str | None = None
    """Study: grid of the temperature, as in 0.1,0.3."""
    samples: Runs | None = None
    """Study: runs per setting, by default 10; each has its own sample, new head and order of batches."""
    scl_model: File | None = None
    """Study: encoder to start the runs with SCL from; by default MODEL."""

    def __post_init__(self) -> None:
        """Check all values and their combinations."""
        super().__post_init__()
        for one, several, nothing in (("sample_size", "few_shot", None), ("noise", "noises", "none")):
            if getattr(self, several) and getattr(self, one) != nothing:
                raise NearfarError(f"{flag(one)} and {flag(several)} exclude each other; give one of them.")
        if self.scl_weights or self.temperatures:
            for name in ("few_shot", "noises", "batch_sizes"):
                if "," in (getattr(self, name) or ""):
                    raise NearfarError(
                        f"{flag(name)}: a grid needs a single value here; give one, or leave the grid out."
                    )
        for name, one, convert, what, least in (
            ("few_shot", "sample_size", int, "whole numbers", 2),
            ("batch_sizes", "batch_size", int, "whole numbers", 0),
            ("scl_weights", "scl_weight", _finite, "numbers", 0),
            ("temperatures", "temperature", _finite, "numbers", 0),
        ):
            given = getattr(self, name)
            if given is None:
                continue
            shown = f"{flag(name)} {format_text(given)}"
            try:
                values = [convert(part) for part in split_list(given)]
            except ValueError:
                raise NearfarError(f"{shown}: must be {what} separated by commas.") from None
            if any(value < least for value in values) or len(set(values)) < len(values):
                raise NearfarError(f"{shown}: must be {least} or above, each once.")
            if len(values) > MAX_AXIS_VALUES:
                raise NearfarError(f"{shown}: must be at most {MAX_AXIS_VALUES} values.")
            for value in values:
                try:
                    field_types(FinetuneConfig)[one].validate(value)
                except InvalidValueError as error:
                    raise NearfarError(f"{flag(name)}: {flag(one)} {format_value(value)}: {error}.") from None

    @property
    def is_study(self) -> bool:
        """Whether the settings describe a study, not a single run."""
        axes = (self.few_shot, self.noises, self.batch_sizes, self.scl_weights, self.temperatures)
        return any((*axes, self.samples, self.scl_model))

    @property
    def single(self) -> FinetuneConfig:
        """The settings without those of a study."""
        return FinetuneConfig(**{field.name: getattr(self, field.name) for field in fields(FinetuneConfig)})


def split_list(values: str | None) -> list[str]:
    """``"a, b"`` -> ``["a", "b"]``."""
    return [part.strip() for part in values.split(",")] if values else []


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
