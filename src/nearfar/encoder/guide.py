"""The guide: a frozen copy of an encoder whose layers say what a sentence's embedding should be close to."""

import copy
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.encoder.pooling import Pooling, pool
from nearfar.encoder.ragged import RaggedBatch, Route, transformer_layers, visit_hidden_states
from nearfar.encoder.transformers_types import PreTrainedModel
from nearfar.types import NearfarError

TEXTS_AT_ONCE = 64  # while remembering; views do not depend on it beyond rounding


class Guide(nn.Module):
    """A frozen copy of ``backbone``: its views of a text are its layers, each pooled over the text's tokens.

    Kim et al. 2021 (section 3): h_k = pool of hidden state k over all real tokens, special ones included, for k in
    0..L, where 0 is the embedding layer. Pooled as the layers are computed, so that no [layers, tokens, dim] exists.

    Args:
        backbone: what to copy, as it is now; training it on does not move the copy.
        route: how to run it, as :func:`nearfar.encoder.ragged.choose_route` found for ``backbone``.
        pooling: ``max`` as in the paper, or ``mean`` as in the authors' code.
        layers: the first and the last layer to take views from; all by default.
        dropout: run with dropout, as the authors' code does by accident. Its mode is the guide's own: ``train`` and
            ``eval`` of a module that holds it leave it alone.
        keep: compute the views of a text once and remember them, in main memory, by its token ids:
            4 * layers * dim bytes a text. See :meth:`precompute_views`.

    Raises:
        NearfarError: layers that the backbone lacks, or ``keep`` with ``dropout``.
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
                "--keep-views and --guide-dropout contradict each other: dropout draws other views each time."
            )
        count = len(transformer_layers(backbone))
        first, last = layers or (0, count)
        if not 0 <= first <= last <= count:
            raise NearfarError(
                f"--views {first} to {last}: this encoder has layers 0 (the embedding layer) to {count}, and the first "
                "view is not behind the last."
            )
        self.layers = (first, last)
        self.dropout = dropout
        self.backbone = copy.deepcopy(backbone).requires_grad_(False)
        self.backbone.zero_grad(set_to_none=True)
        self._route = route
        self._pooling = Pooling(pooling, (), pooling)
        self._cache: dict[tuple[int, ...], Tensor] | None = {} if keep else None
        self.train()

    def train(self, mode: bool = True) -> "Guide":  # noqa: ARG002  (its mode is set once, by ``dropout``)
        """Stay in the mode that ``dropout`` says."""
        return super().train(self.dropout)

    def views(self, token_ids: Sequence[Sequence[int]]) -> Float[Tensor, "batch layers dim"]:
        """The views of each text, in the caller's order: without gradient, float32 whatever autocast computes in.

        With ``keep``, a text not yet remembered is computed alone, so that its views do not depend on the batch that
        asked first, and a resumed run sees the same numbers to the last bit.
        """
        if self._cache is None:
            return self._views(token_ids)
        for ids in dict.fromkeys(map(tuple, token_ids)):
            if ids not in self._cache:
                self._cache[ids] = self._views([ids])[0].cpu()
        return torch.stack([self._cache[tuple(ids)] for ids in token_ids]).to(self.backbone.device)

    def precompute_views(self, token_ids: Sequence[Sequence[int]]) -> None:
        """Compute the views of all these texts ahead, in batches, which is faster than one by one as they come.

        The same texts in the same order give the same numbers to the last bit. Does nothing without ``keep``.
        """
        if self._cache is None:
            return
        missing = sorted((ids for ids in dict.fromkeys(map(tuple, token_ids)) if ids not in self._cache), key=len)
        for start in range(0, len(missing), TEXTS_AT_ONCE):
            batch = missing[start : start + TEXTS_AT_ONCE]
            self._cache.update(zip(batch, self._views(batch).cpu().unbind(), strict=True))

    @torch.no_grad()
    def _views(self, token_ids: Sequence[Sequence[int]]) -> Tensor:
        batch = RaggedBatch.pack(token_ids, device=self.backbone.device)
        first, last = self.layers
        pooled: list[Tensor] = []

        def visit(layer: int, states: Tensor) -> None:
            if first <= layer <= last:
                pooled.append(batch.restore_order(pool([states], batch, self._pooling)).float())

        visit_hidden_states(self.backbone, batch, self._route, visit)
        return torch.stack(pooled, dim=1)


def freeze_embeddings(backbone: PreTrainedModel) -> None:
    """Keep word and position embeddings and their LayerNorm as they are (Kim et al. 2021, section 3).

    Raises:
        NearfarError: the architecture keeps its embedding layer elsewhere.
    """
    embeddings = getattr(backbone, "embeddings", None)
    if not isinstance(embeddings, nn.Module):
        raise NearfarError(f"{type(backbone).__name__} has no embedding layer that nearfar knows how to freeze.")
    embeddings.requires_grad_(False)
