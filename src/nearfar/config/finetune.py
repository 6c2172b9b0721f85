"""Settings of fine-tuning."""

from dataclasses import dataclass
from typing import Literal

from nearfar.config.bounds import AtLeastTwo, Count, Epochs, File, Fraction, LearningRate, Seed, Temperature
from nearfar.config.training import RunConfig
from nearfar.types import NearfarError, Splits


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
    temperature: Temperature = 0.3
    """Temperature of SCL."""
    sample_size: AtLeastTwo | None = None
    """Few-shot: train on a random sample of this number of rows; by default on all rows."""
    sample_seed: Seed = 1
    """Seed of the sample."""
    sample_balanced: bool = True
    """Sample the same number of rows for each label. --no-sample-balanced: sample in the labels' proportions."""
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
