"""Distillation from a teacher to a student: its settings."""

from dataclasses import dataclass
from typing import Literal

from nearfar.config.bounds import BelowOne, File, LearningRate, Model, Temperature, Weight
from nearfar.config.training import TrainConfig
from nearfar.methods.settings import TextColumn
from nearfar.types import NearfarError


@dataclass(frozen=True, kw_only=True)
class DistillConfig(TextColumn, TrainConfig):
    """distill: fit an encoder, mostly a smaller one, to a teacher's vectors or to its similarities in the batch."""

    data: tuple[File, ...] = ()
    """Sentences: text files with one a line, tables, or wiki1m, wiki, sentences, stsb-text, microworld."""
    teacher: Model | None = None
    """The teacher (required): a folder, or owner/name on the hub. Its own pooling and default prompt apply."""
    list_weight: Weight = 0.0
    """Weight of the KL divergence between the teacher's and the student's softmax of the batch's cosines (RankCSE)."""
    vector_weight: Weight = 1.0
    """Weight of the squared distance between the vectors of student and teacher."""
    vector_distance: Literal["cosine", "squared"] = "cosine"
    """Between the vectors scaled to length 1, which is 2 - 2 cosine, or between the vectors as they are."""
    temperature: Temperature = 0.05
    """Divides the student's cosines, with LIST_WEIGHT."""
    teacher_temperature: Temperature | None = None
    """Divides the teacher's cosines, with LIST_WEIGHT; by default TEMPERATURE. RankCSE sharpens them to half of it."""
    vector_projection: Literal["same_width", "kept", "train_only"] = "same_width"
    """Where the widths differ: a linear layer from student to teacher, kept after training, or in training only. By
    default the layer of a narrower student is square and kept; that of a wider one is in training only."""
    learning_rate: LearningRate = 1e-4
    head_learning_rate: LearningRate | None = 1e-3
    dropout: BelowOne | None = 0.0
    """Probability of dropout in training."""

    def __post_init__(self) -> None:
        """Check values, and those that exclude each other."""
        super().__post_init__()
        if not (self.list_weight or self.vector_weight):
            raise NearfarError("--list-weight and --vector-weight are both 0, so there is no loss; raise one.")
        if not self.list_weight and (
            self.teacher_temperature is not None or self.temperature != type(self).temperature
        ):
            raise NearfarError(
                "--temperature and --teacher-temperature divide the lists' cosines; set --list-weight too."
            )
        if self.vector_distance == "squared" and not self.vector_weight:
            raise NearfarError("--vector-distance compares the vectors; set --vector-weight above 0.")
        if self.vector_projection == "kept" and not self.vector_weight:
            raise NearfarError(
                "--vector-projection kept: the layer is trained by the vectors; set --vector-weight above 0."
            )
