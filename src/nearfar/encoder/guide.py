"""The guide of self-guided training: a frozen copy of an encoder, whose pooled layers are positives for embeddings."""

import copy
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.encoder.fixed_shape import FixedShapeBatch
from nearfar.encoder.pooling import Pooling, pool
from nearfar.encoder.pretrained import PreTrainedModel
from nearfar.encoder.ragged import RaggedBatch, Route, transformer_layers, visit_hidden_states
from nearfar.types import NearfarError

BATCH_SIZE = 64
"""Texts per batch of :meth:`Guide.precompute_views`; views do not depend on it beyond rounding."""


class Guide(nn.Module):
    """A frozen copy of ``backbone``; its views of a text are its layers, each pooled over the text's tokens.

    Kim et al. 2021 (section 3): h_k = pool of hidden state k over all real tokens, including special tokens, for k in
    0..L; layer 0 is the embedding layer. Each layer is pooled as soon as it is computed, so that no tensor
    [layers, tokens, dim] is allocated. Layers after the last one of the views do not run.

    Args:
        backbone: the backbone to copy; training it afterwards does not change the copy.
        route: the result of :func:`nearfar.encoder.ragged.choose_route` for ``backbone``.
        pooling: ``max`` as in the paper, or ``mean`` as in the authors' code.
        layers: first and last layer of the views; all layers by default.
        dropout: run with dropout, as the authors' code does by accident. ``train`` and ``eval`` of an outer module do
            not change the guide's mode.
        keep: compute the views of each text once and cache them in main memory by token ids; this takes
            4 * layers * dim bytes per text. See :meth:`precompute_views`.

    Raises:
        NearfarError: the backbone does not have these layers, or ``keep`` is combined with ``dropout``.
    """

    def __init__(
        self,
        backbone: PreTrainedModel,
        route: Route,
        *,
        pooling: Literal["max", "mean"] = "max",
        layers: tuple[int, int] | None = None,
        dropout: bool = False,
        keep: bool = False,
    ) -> None:
        super().__init__()
        if keep and dropout:
            raise NearfarError(
                "--keep-views and --guide-dropout contradict each other: with dropout, views differ each time."
            )
        count = len(transformer_layers(backbone))
        first, last = layers or (0, count)
        if not 0 <= first <= last <= count:
            raise NearfarError(
                f"--views {first} to {last}: this encoder has layers 0 (the embedding layer) to {count}, and the first "
                "layer must not be after the last."
            )
        self.layers = (first, last)
        self.dropout = dropout
        self.backbone = copy.deepcopy(backbone).requires_grad_(False)
        self.backbone.zero_grad(set_to_none=True)
        self._route = route
        self._pooling = Pooling(pooling, (), pooling)
        self.keep = keep
        self._cache: dict[tuple[int, ...], Tensor] | None = {} if keep else None
        self.train()

    def train(self, mode: bool = True) -> "Guide":  # noqa: ARG002  (``dropout`` sets the mode)
        """Keep the mode set by ``dropout``."""
        return super().train(self.dropout)

    def views(self, token_ids: Sequence[Sequence[int]]) -> Float[Tensor, "batch layers dim"]:
        """The views of each text, in the caller's order, without gradient, in float32 also under autocast.

        With ``keep``, a text that is not cached yet is computed alone. Its views then do not depend on the batch that
        requested it first, and a resumed run gets bit-identical numbers.
        """
        if self._cache is None:
            return self._views(token_ids)
        for ids in dict.fromkeys(map(tuple, token_ids)):
            if ids not in self._cache:
                self._cache[ids] = self._views([ids])[0].cpu()
        return torch.stack([self._cache[tuple(ids)] for ids in token_ids]).to(self.backbone.device)

    def precompute_views(self, token_ids: Sequence[Sequence[int]]) -> None:
        """Compute and cache the views of these texts in batches, which is faster than one by one.

        The same texts in the same order give bit-identical numbers. Does nothing without ``keep``.
        """
        if self._cache is None:
            return
        missing = sorted((ids for ids in dict.fromkeys(map(tuple, token_ids)) if ids not in self._cache), key=len)
        for start in range(0, len(missing), BATCH_SIZE):
            batch = missing[start : start + BATCH_SIZE]
            self._cache.update(zip(batch, self._views(batch).cpu().unbind(), strict=True))

    def _views(self, token_ids: Sequence[Sequence[int]]) -> Tensor:
        return self.batch_views(RaggedBatch.pack(token_ids, device=self.backbone.device))

    @torch.no_grad()
    def batch_views(self, batch: RaggedBatch | FixedShapeBatch) -> Float[Tensor, "batch layers dim"]:
        """The views of a batch's texts, in the caller's order, computed now; see :meth:`views`."""
        first, last = self.layers
        pooled: list[Tensor] = []

        def visit(layer: int, states: Tensor) -> None:
            if layer >= first:
                pooled.append(batch.restore_order(pool([states], batch, self._pooling)).float())

        visit_hidden_states(self.backbone, batch, self._route, visit, last_layer=last)
        return torch.stack(pooled, dim=1)
