"""Encoder and classifier as training sees them: texts tokenised once, vectors with gradient in the run's precision."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nearfar.encoder.classifier import Classifier, Item, TokenizedItems
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.guide import Guide
from nearfar.encoder.token_embedding import add_gradients_in_place
from nearfar.encoder.tokens import BroadcastFromFirst, TokenRows, TokenStore

if TYPE_CHECKING:
    from rich.console import Console


class TrainingEncoder:
    """The encoder as methods see it: each distinct text is tokenised once, and embeddings come with their gradient.

    ``broadcast_from_first`` and ``console`` are as in :class:`nearfar.encoder.tokens.TokenStore`.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        max_length: int | None,
        bf16: bool,
        broadcast_from_first: BroadcastFromFirst,
        console: "Console | None" = None,
    ) -> None:
        add_gradients_in_place(encoder)
        self.encoder = encoder
        self.bf16 = bf16
        self.tokens = TokenStore(
            partial(encoder.tokenize, max_length=max_length),
            vocabulary=encoder.backbone.config.vocab_size,
            broadcast_from_first=broadcast_from_first,
            console=console,
        )

    def read(self, rows: Sequence[Sequence[str]]) -> None:
        """Tokenise the texts of ``rows``; several processes read the same ones together."""
        self.tokens.read(text for row in rows for text in row)

    def ids(self, texts: Sequence[str]) -> TokenRows:
        """Token ids of texts that were read."""
        return self.tokens.select(texts)

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each of these texts has, which were read."""
        lengths: list[int] = self.ids(texts).lengths.tolist()
        return lengths

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Embeddings [texts, dim] with gradient, in float32."""
        with self._precision():
            return self.encoder(self.ids(texts)).float()

    def hidden(self, token_ids: Sequence[Sequence[int]]) -> Tensor:
        """Last hidden states [tokens, dim] with gradient, in float32."""
        with self._precision():
            return self.encoder.hidden(token_ids).float()

    def views(self, guide: Guide) -> Callable[[Sequence[str]], Tensor]:
        """The guide's views of texts."""

        def views(texts: Sequence[str]) -> Tensor:
            with self._precision():
                return guide.views(self.ids(texts)).float()

        return views

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.encoder.device.type, dtype=torch.bfloat16, enabled=self.bf16)


class TrainingClassifier:
    """The classifier as methods see it, in two halves: the states of [CLS], and the head on them."""

    def __init__(self, classifier: Classifier, *, max_length: int | None, bf16: bool) -> None:
        add_gradients_in_place(classifier)
        self.classifier = classifier
        self.max_length = max_length
        self.bf16 = bf16
        self.head = TrainingHead(classifier)
        self.truncated = 0
        self._rows: dict[Item, int] = {}
        self._tokens = TokenizedItems([], None, [])

    def read(self, items: Sequence[Item]) -> None:
        """Tokenise the items, which take the place of those that were read before."""
        self._rows = {item: row for row, item in enumerate(dict.fromkeys(items))}
        self._tokens = self.classifier.tokenize(list(self._rows), max_length=self.max_length)
        self.truncated = sum(self._tokens.is_truncated[self._rows[item]] for item in items)

    def lengths(self, items: Sequence[Item]) -> list[int]:
        """How many tokens each of these items has, which were read."""
        return [len(self._tokens.ids[self._rows[item]]) for item in items]

    def states(self, items: Sequence[Item]) -> Tensor:
        """Last hidden states of [CLS] [items, dim] of items that were read, with gradient, in float32."""
        with torch.autocast(self.classifier.device.type, dtype=torch.bfloat16, enabled=self.bf16):
            return self.classifier.cls(self._tokens.select([self._rows[item] for item in items])).float()


class TrainingHead(nn.Module):
    """What a classifier has beside its backbone, as one module: states of [CLS] -> logits.

    A pooler, where the family has one, counts as part of the backbone.
    """

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self._compute = classifier.head  # a method: not registered, so the backbone is no part of this module
        for name, module in classifier.model.named_children():
            if module is not classifier.backbone:
                self.add_module(name, module)

    def forward(self, states: Tensor) -> Tensor:
        """Logits [items, classes], or [items, 1] in regression."""
        logits: Tensor = self._compute(states)
        return logits
