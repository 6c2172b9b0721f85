"""The encoder as training sees it: texts tokenised once, and embeddings with their gradient in the run's precision."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nearfar.encoder.encoder import Encoder
from nearfar.encoder.guide import Guide


class TrainingEncoder:
    """The encoder as methods see it: each distinct text is tokenised once, and embeddings come with their gradient."""

    def __init__(self, encoder: Encoder, *, max_length: int | None, bf16: bool) -> None:
        self.encoder = encoder
        self.max_length = max_length
        self.bf16 = bf16
        self.tokens: dict[str, list[int]] = {}
        self.truncated = 0

    def read(self, rows: Sequence[Sequence[str]]) -> None:
        """Tokenise the texts of ``rows``."""
        fresh = [text for text in dict.fromkeys(text for row in rows for text in row) if text not in self.tokens]
        tokenized = self.encoder.tokenize(fresh, max_length=self.max_length)
        self.tokens |= dict(zip(fresh, tokenized.ids, strict=True))
        self.truncated += tokenized.truncated

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts that were read."""
        return [self.tokens[text] for text in texts]

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
