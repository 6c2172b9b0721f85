"""The teacher of distillation: a frozen encoder, whose vectors of the training texts are computed once."""

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from nearfar.encoder.encoder import Encoder
from nearfar.encoder.token_batches import NotFiniteError
from nearfar.types import NearfarError

SAMPLE = 1000
"""Number of texts in :attr:`TeacherVectors.sample`."""


class TeacherVectors:
    """The teacher's embeddings of a run's texts, as :meth:`Encoder.encode` computes them: no dropout, no gradient.

    The teacher's own pooling, default prompt and maximum length apply, and its Normalize if it has one.

    Training computes the vectors of all texts first, into a file that :meth:`attach` takes. Without it, vectors are
    computed when they are requested.

    Args:
        encoder: the teacher.
        texts: the texts of the run; each distinct one gets one row.
        name: the teacher's name, for messages.
        bf16: compute in bfloat16.
    """

    def __init__(self, encoder: Encoder, texts: Iterable[str], *, name: str, bf16: bool) -> None:
        self.name, self.dim, self.texts = name, encoder.dim, list(dict.fromkeys(texts))
        self._rows = {text: row for row, text in enumerate(self.texts)}
        self._encoder: Encoder | None = encoder.eval().requires_grad_(False)
        self._device, self.bf16 = encoder.device, bf16
        self._attached: NDArray[np.float32] | None = None

    @property
    def encoder(self) -> Encoder:
        """The teacher, until its vectors are attached."""
        assert self._encoder is not None
        return self._encoder

    def attach(self, vectors: NDArray[np.float32]) -> None:
        """Use these vectors [texts, dim], one for each of :attr:`texts`, and free the teacher.

        Raises:
            NearfarError: they have another shape.
        """
        if vectors.shape != (len(self.texts), self.dim):
            raise NearfarError(
                f"the teacher's vectors have the shape {vectors.shape}, not {(len(self.texts), self.dim)}"
            )
        self._attached, self._encoder = vectors, None

    def __call__(self, texts: Sequence[str]) -> Float[Tensor, "batch dim"]:
        """The vectors of some of the texts, in float32 on the teacher's device."""
        if self._attached is None:
            found = self._encode(texts)
        else:
            found = np.asarray(self._attached[[self._rows[text] for text in texts]])
        return torch.from_numpy(found).to(self._device)

    @property
    def sample(self) -> list[str]:
        """At most :data:`SAMPLE` of the texts, at equal distances."""
        return self.texts[:: -(-len(self.texts) // SAMPLE)]

    @cached_property
    def mean_square(self) -> float:
        """The mean square of the entries of the vectors, of at most :data:`SAMPLE` texts; 1 / dim for unit vectors."""
        return float(self(self.sample).double().square().mean())

    def _encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        tokenized = self.encoder.tokenize(texts)
        try:
            return self.encoder.encode_tokens(tokenized.ids, prompt_length=tokenized.prompt_length, bf16=self.bf16)
        except NotFiniteError as error:
            text = texts[error.number]
            raise NotFiniteError(self._rows[text], text) from None
