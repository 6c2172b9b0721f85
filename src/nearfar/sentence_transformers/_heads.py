"""Losses with a head: its width, and one process, because the trainer synchronises the model's forward pass alone."""

from sentence_transformers import SentenceTransformer
from torch import Tensor, distributed, nn

from nearfar.types import NearfarError


def embedding_width(model: SentenceTransformer) -> int:
    """The width of the model's embeddings.

    Raises:
        NearfarError: the model does not say.
    """
    width = model.get_embedding_dimension()
    if width is None:
        raise NearfarError("the model's modules do not say how wide its embeddings are, so no head fits on them")
    return int(width)


def check_width(loss: nn.Module, embeddings: Tensor, width: int, *, without: str) -> None:
    """Raise NearfarError unless the embeddings have the width that the loss was made for."""
    if embeddings.shape[1] != width:
        raise NearfarError(
            f"{type(loss).__name__} was made for embeddings of width {width}, but they are {embeddings.shape[1]} wide; "
            f"MatryoshkaLoss, which shortens them, needs a loss without a head: {without}"
        )


def refuse_processes(loss: nn.Module, *, without: str) -> None:
    """Raise NearfarError in one of several processes: each would train weights outside the model on its own."""
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        raise NearfarError(
            f"{type(loss).__name__} has a part outside the model's forward pass, whose gradients the trainer does not "
            f"average over the {distributed.get_world_size()} processes; train in one process, by `nearfar train`, or "
            f"with {without}"
        )
