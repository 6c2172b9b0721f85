"""What fine-tuning a classifier can be told beside what every run can."""

import math
from dataclasses import dataclass, fields

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
from nearfar.types import NearfarError

MAX_AXIS_VALUES = 100
"""Values of one axis of a study."""


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(RunConfig):
    """Fine-tune a classifier by cross-entropy and supervised contrastive learning (Gunel et al. 2021)."""

    task: File = "sst2"
    """sst2, cola, mrpc, rte, qnli, mnli, stsb (scores: regression), amazon2, yelp2; or a labelled file of your own."""
    validation: File | None = None
    """File of the rows that choose the best step; by default VALIDATION_ROWS of the training rows."""
    test: File | None = None
    """File of the rows that are tested; by default GLUE's validation set, or a fifth of a file of your own."""
    text_columns: tuple[str, ...] = ()
    """Columns of a file that hold its one or two texts; by default text, or sentence1 and sentence2."""
    label_column: str = "label"
    """Column of a file that holds labels, or scores."""
    validation_rows: AtLeastTwo = 500
    """Training rows, in the labels' proportions, that choose the best step instead (the paper's number)."""
    scl_weight: Fraction = 0.9
    """Lambda: the loss is (1 - lambda) cross-entropy + lambda SCL; 0 is cross-entropy alone."""
    temperature: Positive = 0.3
    """Of SCL."""
    dropout: BelowOne | None = None
    """By default the model's own, 0.1 in BERT and RoBERTa."""
    sample_size: AtLeastTwo | None = None
    """Few-shot: train on so many rows, drawn by SAMPLE_SEED; by default all."""
    sample_seed: Seed = 1
    """Which rows are drawn."""
    sample_balanced: bool = True
    """Draw as many rows of each label; else in the labels' proportions."""
    noise: File = "none"
    """Noise in the training texts: word-dropout, word-swap or characters, or a file of back-translations to take."""
    noise_rate: Fraction = 0.1
    """Share of words or characters that the noise changes."""
    batch_size: Count = 16
    """Rows in a batch, of each process where there are several."""
    epochs: Epochs = 3
    """Passes over the rows."""
    learning_rate: LearningRate = 1e-5
    """Peak of the learning rate (the paper's)."""
    balanced: bool = False
    """Batches with as many rows of each label."""


@dataclass(frozen=True, kw_only=True)
class FinetuneStudyConfig(FinetuneConfig):
    """Fine-tune a classifier by cross-entropy and supervised contrastive learning (Gunel et al. 2021).

    With any of --few-shot, --noises, --batch-sizes, --scl-weights, --temperatures, --samples, --scl-model it is a study
    of many runs: each setting with SAMPLES samples, by cross-entropy alone and with SCL on the same samples, and the
    difference tested.
    """

    few_shot: str | None = None
    """Study: sizes of the training samples, as in 20,100,1000."""
    noises: str | None = None
    """Study: noises in the training texts, as in none,word-dropout:0.1,characters:0.05,translations.tsv."""
    batch_sizes: str | None = None
    """Study: as in 16,64,256; updates per second are measured."""
    scl_weights: str | None = None
    """Study: a grid of lambda, as in 0.1,0.5,0.9; the validation rows choose."""
    temperatures: str | None = None
    """Study: and of the temperature, as in 0.1,0.3."""
    samples: Runs | None = None
    """Study: runs of each setting, by default 10; each has a sample, a new head and an order of batches of its own."""
    scl_model: File | None = None
    """Study: the encoder that the runs with SCL start from, by default MODEL too."""

    def __post_init__(self) -> None:
        """Refuse values that no run can use, before anything is loaded."""
        super().__post_init__()
        for one, several, nothing in (("sample_size", "few_shot", None), ("noise", "noises", "none")):
            if getattr(self, several) and getattr(self, one) != nothing:
                raise NearfarError(f"{flag(one)} and {flag(several)} say two things; leave one of them out.")
        if self.scl_weights or self.temperatures:
            for name in ("few_shot", "noises", "batch_sizes"):
                if "," in (getattr(self, name) or ""):
                    raise NearfarError(
                        f"{flag(name)}: a grid is of one setting; name one value, or leave the grid out."
                    )
        for name, one, kind, what, least in (
            ("few_shot", "sample_size", int, "whole numbers", 2),
            ("batch_sizes", "batch_size", int, "whole numbers", 0),
            ("scl_weights", "scl_weight", _finite, "numbers", 0),
            ("temperatures", "temperature", _finite, "numbers", 0),
        ):
            given = getattr(self, name)
            if given is None:
                continue
            told = f"{flag(name)} {format_text(given)}"
            try:
                values = [kind(part) for part in split_list(given)]
            except ValueError:
                raise NearfarError(f"{told}: must be {what} with commas between.") from None
            if any(value < least for value in values) or len(set(values)) < len(values):
                raise NearfarError(f"{told}: must be {least} or above, each once.")
            if len(values) > MAX_AXIS_VALUES:
                raise NearfarError(f"{told}: must be at most {MAX_AXIS_VALUES} values.")
            for value in values:
                try:
                    field_types(FinetuneConfig)[one].validate(value)
                except InvalidValueError as error:
                    raise NearfarError(f"{flag(name)}: {flag(one)} {format_value(value)}: {error}.") from None

    @property
    def is_study(self) -> bool:
        """Whether it asks for more than one run."""
        axes = (self.few_shot, self.noises, self.batch_sizes, self.scl_weights, self.temperatures)
        return any((*axes, self.samples, self.scl_model))

    @property
    def single(self) -> FinetuneConfig:
        """The one run that it asks for where it is no study."""
        return FinetuneConfig(**{field.name: getattr(self, field.name) for field in fields(FinetuneConfig)})


def split_list(values: str | None) -> list[str]:
    """``"a, b"`` -> ``["a", "b"]``."""
    return [part.strip() for part in values.split(",")] if values else []


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
