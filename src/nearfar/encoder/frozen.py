"""Frozen encoders beside a trained one: the guide of self-guided training, and the teacher of distillation."""

import copy
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from nearfar.encoder.encoder import Encoder
from nearfar.encoder.pooling import Pooling, pool
from nearfar.encoder.pretrained import PreTrainedModel
from nearfar.encoder.prompts import Role
from nearfar.encoder.ragged import RaggedBatch, Route, hidden_states
from nearfar.encoder.tiles import TiledBatch
from nearfar.encoder.token_batches import NotFiniteError
from nearfar.types import NearfarError


class Guide(nn.Module):
    """A frozen copy of ``backbone``; its views of a text are its layers, each pooled over the text's tokens.

    Kim et al. 2021 (section 3): h_k = pool of hidden state k over all real tokens, including special tokens, for k in
    0..L; layer 0 is the embedding layer.

    Args:
        backbone: the backbone to copy; training it afterwards does not change the copy.
        route: the result of :func:`nearfar.encoder.ragged.choose_route` for ``backbone``.
        pooling: ``max`` as in the paper, or ``mean`` as in the authors' code.
        layers: first and last layer of the views; all layers by default.
        dropout: run with dropout, as the authors' code does by accident. ``train`` and ``eval`` of an outer module do
            not change the guide's mode.

    Raises:
        NearfarError: the backbone does not have these layers.
    """

    def __init__(
        self,
        backbone: PreTrainedModel,
        route: Route,
        *,
        pooling: Literal["max", "mean"] = "max",
        layers: tuple[int, int] | None = None,
        dropout: bool = False,
    ) -> None:
        super().__init__()
        count = backbone.config.num_hidden_layers
        first, last = layers or (0, count)
        if not 0 <= first <= last <= count:
            raise NearfarError(f"--views {first} to {last}: this encoder has layers 0 (the embeddings) to {count}.")
        self.layers = (first, last)
        self.dropout = dropout
        self.backbone = copy.deepcopy(backbone).requires_grad_(False)
        self.backbone.zero_grad(set_to_none=True)
        self._route = route
        self._pooling = Pooling(pooling, (), pooling)
        self.train()

    def train(self, mode: bool = True) -> "Guide":  # noqa: ARG002  (``dropout`` sets the mode)
        """Keep the mode set by ``dropout``."""
        return super().train(self.dropout)

    def views(self, token_ids: Sequence[Sequence[int]]) -> Float[Tensor, "batch layers dim"]:
        """The views of each text, in the caller's order, without gradient, in float32 also under autocast."""
        return self.batch_views(RaggedBatch.pack(token_ids, device=self.backbone.device))

    @torch.no_grad()
    def batch_views(self, batch: RaggedBatch | TiledBatch) -> Float[Tensor, "batch layers dim"]:
        """The views of a batch's texts, in the caller's order; see :meth:`views`."""
        first, last = self.layers
        hidden = hidden_states(self.backbone, batch, self._route, all_layers=True)[first : last + 1]
        views = [batch.restore_order(pool([states], batch, self._pooling)).float() for states in hidden]
        return torch.stack(views, dim=1)


SAMPLE = 1000
"""Number of texts in :attr:`TeacherVectors.sample`."""


class TeacherVectors:
    """The teacher's embeddings of a run's texts, as :meth:`Encoder.encode` computes them: no dropout, no gradient.

    The teacher's own pooling, default prompt and maximum length apply, and its Normalize if it has one.

    Training computes the vectors of all texts first, into a file that :meth:`attach` takes, but for those that exist
    already (:meth:`use`). Without it, vectors are computed when they are requested.

    Args:
        encoder: the teacher.
        texts: the texts of the run; each distinct one gets one row.
        name: the teacher's name, for messages.
        bf16: compute in bfloat16.
        role: what its texts are, which decides prompt and maximum length.
    """

    def __init__(
        self, encoder: Encoder, texts: Iterable[str], *, name: str, bf16: bool, role: Role | None = None
    ) -> None:
        self.name, self.dim, self.texts = name, encoder.dim, list(dict.fromkeys(texts))
        self._rows = {text: row for row, text in enumerate(self.texts)}
        self.encoder = encoder.eval().requires_grad_(False)
        self._device, self.bf16, self.role = encoder.device, bf16, role
        self.known: dict[str, int] = {}
        """Further texts of the run, whose vectors exist already, and their rows of :attr:`vectors`, -rows to -1."""
        self.vectors: NDArray[np.floating] = np.empty((0, self.dim), np.float32)
        self._attached: NDArray[np.float32] | None = None

    def use(self, vectors: NDArray[np.floating], known: dict[str, int]) -> None:
        """Use vectors [rows, dim] that exist already; ``known`` are the texts that have one, as in :attr:`known`."""
        self.vectors, self.known = vectors, known
        self.texts = [text for text in self.texts if text not in known]
        self._rows = {**known, **{text: row for row, text in enumerate(self.texts)}}
        self._attached = None if self.texts else np.empty((0, self.dim), np.float32)

    def attach(self, vectors: NDArray[np.float32]) -> None:
        """Use these vectors [texts, dim], one for each of :attr:`texts`, and free the teacher."""
        self._attached = vectors
        del self.encoder

    def __call__(self, texts: Sequence[str]) -> Float[Tensor, "batch dim"]:
        """The vectors of some of the texts, in float32 on the teacher's device.

        Raises:
            NotFiniteError: a vector is not finite.
        """
        if self._attached is not None:
            rows = np.array([self._rows[text] for text in texts])
            vectors = np.empty((len(rows), self.dim), np.float32)
            is_known, rest = rows < 0, rows >= 0
            vectors[is_known], vectors[rest] = self.vectors[rows[is_known]], self._attached[rows[rest]]
            return torch.from_numpy(vectors).to(self._device)
        prompt, max_length = self.encoder.prompt_of(self.role), self.encoder.length_of(self.role)
        tokens = self.encoder.tokenize(texts, prompt=prompt, max_length=max_length)
        try:
            vectors = self.encoder.encode_tokens(tokens.ids, prompt_length=tokens.prompt_length, bf16=self.bf16)
        except NotFiniteError as error:
            text = texts[error.number]
            raise NotFiniteError(self._rows[text], text) from None
        return torch.from_numpy(vectors).to(self._device)

    @property
    def sample(self) -> list[str]:
        """At most :data:`SAMPLE` of the texts, at equal distances."""
        return self.texts[:: -(-len(self.texts) // SAMPLE)]

    @cached_property
    def mean_square(self) -> float:
        """The mean square of the entries of the vectors, of at most :data:`SAMPLE` texts; 1 / dim for unit vectors."""
        return float(self(self.sample).double().square().mean())
