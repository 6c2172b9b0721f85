"""What the losses share: what they read from sentence-transformers' features, their settings, the limits of heads."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from sentence_transformers import SentenceTransformer
from torch import Tensor, distributed, nn

from nearfar.types import NearfarError

Features: TypeAlias = dict[str, Any]
"""The tokenized texts of one column of a batch."""

EDGES = ("cls", "sep", "bos", "eos", "pad")
"""The special tokens that a tokenizer puts around a text."""


class TextLoss(nn.Module):
    """A loss on the texts of a batch.

    Args:
        model: the model to train.
        settings: the arguments of the loss by name, which become its attributes; ``locals()`` at the start of
            ``__init__``.
    """

    paper = ""
    """BibTeX of the paper."""

    def __init__(self, model: SentenceTransformer, settings: dict[str, Any]) -> None:
        super().__init__()
        self.model = model
        self._settings = tuple(name for name in settings if name not in ("self", "model", "__class__"))
        for name in self._settings:
            setattr(self, name, settings[name])
        self._name = type(self).__name__
        self._edges = edge_tokens(model)

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        return {name: getattr(self, name) for name in self._settings}

    @property
    def citation(self) -> str:
        """BibTeX of the paper, for the model card."""
        return self.paper

    def text_ids(self, columns: Sequence[Features]) -> list[Int[Tensor, " batch"]]:
        """:func:`text_ids` with the model's own special tokens around a text."""
        return text_ids(columns, self._edges)

    def embed(self, columns: Iterable[Features]) -> list[Tensor]:
        """The embeddings of each column, [batch, dim]."""
        return [self.model(features)["sentence_embedding"] for features in columns]

    def columns_of(self, features: Iterable[Features], counts: Sequence[int], names: str) -> list[Features]:
        """The columns of a batch.

        Raises:
            NearfarError: their number is not one of ``counts``; ``names`` says which columns the loss expects.
        """
        columns = list(features)
        if len(columns) not in counts:
            found = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
            raise NearfarError(
                f"{self._name} needs the columns {names}, but the data set has {found} of texts; "
                "choose them in this order by dataset.select_columns([...])"
            )
        return columns

    def refuse_labels(self, labels: Tensor | None) -> None:
        """Raise NearfarError if there are labels, which the loss would ignore."""
        if labels is not None:
            raise NearfarError(
                f"{self._name} takes no labels, but the data set has a label column; "
                "remove it by dataset.remove_columns([...]), or choose a loss that reads labels"
            )

    def integer_labels(self, labels: Tensor | None, like: Tensor, meaning: str) -> Int[Tensor, " batch"]:
        """The labels of a batch with the rows of ``like``, on its device.

        Raises:
            NearfarError: there are none, or not one integer for each row; ``meaning`` says what the labels are.
        """
        if labels is None:
            raise NearfarError(f"{self._name} needs a column label: {meaning}; the data set has none")
        rows = len(like)
        if labels.is_floating_point() or labels.dtype == torch.bool or labels.numel() != rows:
            kind = str(labels.dtype).removeprefix("torch.")
            raise NearfarError(
                f"{self._name} needs one integer label for each of the {rows} rows of a batch: {meaning}; found {kind} "
                f"labels of shape {tuple(labels.shape)}"
            )
        return labels.reshape(rows).long().to(like.device)

    def check_width(self, embeddings: Tensor, width: int, *, without: str) -> None:
        """Raise NearfarError unless the embeddings have the width that the loss was made for."""
        if embeddings.shape[1] != width:
            raise NearfarError(
                f"{self._name} was made for embeddings of width {width}, but they are {embeddings.shape[1]} wide; "
                f"MatryoshkaLoss, which shortens them, needs a loss without a head: {without}"
            )

    def refuse_processes(self, *, without: str) -> None:
        """Raise NearfarError in one of several processes: each would train weights outside the model on its own.

        The trainer synchronises the model's forward pass alone.
        """
        if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            raise NearfarError(
                f"{self._name} has a part outside the model's forward pass, whose gradients the trainer does not "
                f"average over the {distributed.get_world_size()} processes; train in one process, by `nearfar train`, "
                f"or with {without}"
            )


def mean_or_zero(losses: Float[Tensor, " anchors"]) -> Float[Tensor, ""]:
    """The mean of the losses; 0, not 0 / 0, without an anchor."""
    return losses.sum() / max(len(losses), 1)


def edge_tokens(model: SentenceTransformer) -> frozenset[int]:
    """The ids of the special tokens that the model's tokenizer puts around a text."""
    ids = (getattr(model.tokenizer, f"{name}_token_id", None) for name in EDGES)
    return frozenset(token for token in ids if token is not None)


def token_rows(features: Features) -> list[list[int]]:
    """The token ids of each text of a column, without padding.

    Raises:
        NearfarError: the column has no token ids: its rows are not texts.
    """
    ids = features.get("input_ids")
    if not isinstance(ids, Tensor):
        raise NearfarError("the losses of nearfar need texts, but a column of the data set has no token ids")
    if "cu_seq_lens_q" in features:  # texts are concatenated, for attention without padding
        flat, ends = ids.flatten().tolist(), features["cu_seq_lens_q"].tolist()
        return [flat[start:end] for start, end in pairwise(ends)]
    if ids.ndim == 1:  # StaticEmbedding
        flat, starts = ids.tolist(), features["offsets"].tolist()
        return [flat[start:end] for start, end in zip(starts, [*starts[1:], len(flat)], strict=True)]
    masks = features["attention_mask"].bool().tolist() if "attention_mask" in features else None
    rows: list[list[int]] = ids.tolist()
    if masks is None:
        return rows
    return [[token for token, real in zip(*both, strict=True) if real] for both in zip(rows, masks, strict=True)]


def text_ids(columns: Sequence[Features], edges: frozenset[int]) -> list[Int[Tensor, " batch"]]:
    """A number for each text of each column; equal texts have equal numbers in all columns.

    Texts are compared by their token ids without prompt and without the special tokens ``edges`` around them. So texts
    are equal if the model cannot distinguish them, also where they differ only after the maximum length.
    """
    numbers: dict[tuple[int, ...], int] = {}
    found = []
    for features in columns:
        prompt = _prompt_length(features)
        keys = (_stripped(tokens[prompt:], edges) for tokens in token_rows(features))
        ids = [numbers.setdefault(key, len(numbers)) for key in keys]
        found.append(torch.tensor(ids, device=features["input_ids"].device))
    return found


def _prompt_length(features: Features) -> int:
    """Number of first tokens that are the column's prompt."""
    length = features.get("prompt_length", 0)
    return int(length.flatten()[0]) if isinstance(length, Tensor) else int(length)


def _stripped(tokens: Sequence[int], edges: frozenset[int]) -> tuple[int, ...]:
    start, end = 0, len(tokens)
    while start < end and tokens[start] in edges:
        start += 1
    while start < end and tokens[end - 1] in edges:
        end -= 1
    return tuple(tokens[start:end])


def embedding_width(model: SentenceTransformer) -> int:
    """The width of the model's embeddings.

    Raises:
        NearfarError: the model does not say.
    """
    width = model.get_embedding_dimension()
    if width is None:
        raise NearfarError("the model's modules do not say how wide its embeddings are, so no head fits on them")
    return int(width)
