"""regression: its settings; the defaults are those of the SimCSE review's fine-tuning on STS-B."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from nearfar.config.bounds import Count, Epochs, File, Fraction, Temperature, Weight
from nearfar.config.training import TrainConfig
from nearfar.types import NearfarError


@dataclass(frozen=True, kw_only=True)
class RegressionConfig(TrainConfig):
    """regression: squared error between a score and the cosine of two texts, or a ranking of cosines as the scores."""

    recipe_batch_size: ClassVar[int | None] = 32

    data: tuple[File, ...] = ("stsb:train",)
    """Scored pairs: stsb:train, sickr:train, or files with the columns below."""
    first_column: str = "sentence1"
    """Column of the first texts."""
    second_column: str = "sentence2"
    """Column of the second texts."""
    score_column: str = "score"
    """Column of the scores."""
    objective: Literal["mse", "cosent", "angle"] = "mse"
    """mse: squared error; cosent: rank the cosines of a batch as the scores (CoSENT); angle: the same, in-batch
    negatives, and a ranking of angles in complex space (AnglE, Li & Li 2024)."""
    head: Literal["cosine", "linear"] = "cosine"
    """cosine, or a linear head on (|u - v|, u * v), which is dropped after training; linear with OBJECTIVE mse only."""
    temperature: Temperature = 0.05
    """Divides the cosines in cosent and angle, also those of in-batch negatives."""
    angle_temperature: Temperature = 1.0
    """Divides the angles in angle."""
    cosine_weight: Weight = 1.0
    """Weight of the ranking of cosines in angle."""
    in_batch_weight: Weight = 1.0
    """Weight of the in-batch negatives in angle."""
    angle_weight: Weight = 1.0
    """Weight of the ranking of angles in angle."""
    in_batch_threshold: Fraction = 0.8
    """Pairs with at least this score (of 0 to 1) are positives of the in-batch negatives in angle."""
    batch_size: Count = 16
    """Batch size per process (the STS-B setting of the SimCSE review); the default shrinks to the number of rows."""
    epochs: Epochs = 10
    warmup: Fraction = 0.06
    """Share of the steps in which the learning rate rises: 214 of 3,590 steps."""

    def __post_init__(self) -> None:
        """Check values, and those that exclude each other."""
        super().__post_init__()
        if self.head == "linear" and self.objective != "mse":
            raise NearfarError(
                f"--head linear and --objective {self.objective}: {self.objective} ranks cosines; leave out --head, or "
                "use --objective mse."
            )
        if self.objective == "angle" and not (self.cosine_weight or self.in_batch_weight or self.angle_weight):
            raise NearfarError(
                "--cosine-weight, --in-batch-weight and --angle-weight are all 0, so there is no loss; make one of "
                "them positive."
            )
