"""Blocks of texts -> blocks of vectors, however many: the next block is tokenised while this one is encoded."""

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from nearfar.encoder.encoder import Encoder, Tokenized
from nearfar.encoder.finite import NotFiniteError

Item = TypeVar("Item")


class TokenBlock(NamedTuple):
    """A block of texts, each distinct one as tokens once; the first text is number ``start`` of all.

    Distinct in the block only: a memory of earlier blocks would make a vector's last bits depend on whether the run
    was interrupted.
    """

    start: int
    rows: NDArray[np.intp]
    """Where among the distinct texts each text is."""
    tokenized: Tokenized

    def with_global_number(self, error: NotFiniteError) -> NotFiniteError:
        """The error with the number that the text has among all, from the one that it has among the distinct ones."""
        return NotFiniteError(self.start + int((self.rows == error.number).argmax()), error.content)

    def expand_distinct(self, vectors: Float[np.ndarray, "distinct dim"]) -> Float[np.ndarray, "texts dim"]:
        """The vectors of all its texts, from those of the distinct ones."""
        return vectors if len(self.rows) == len(vectors) else vectors[self.rows]


Encoded: TypeAlias = Generator[tuple[TokenBlock, Float[np.ndarray, "distinct dim"]], None, None]
"""Blocks, each with the vectors of its distinct texts."""


def tokenize_blocks(encoder: Encoder, blocks: Iterable[tuple[int, list[str]]]) -> Iterator[TokenBlock]:
    """Tokenise blocks of texts, each given with its start, in a thread that is one block ahead."""
    return prefetch(_tokenize(encoder, start, texts) for start, texts in blocks)


def encode_blocks(
    encoder: Encoder,
    blocks: Iterable[TokenBlock],
    *,
    normalize: bool = False,
    bf16: bool = False,
    on_batch: Callable[[int], None] | None = None,
) -> Encoded:
    """Encode block after block; the vectors are those of :meth:`Encoder.encode`.

    Raises:
        NotFiniteError: as :meth:`Encoder.encode`.
    """
    for block in blocks:
        ids = block.tokenized.ids
        try:
            vectors = encoder.encode_tokens(ids, normalize=normalize, bf16=bf16, on_batch=on_batch)
        except NotFiniteError as error:
            raise block.with_global_number(error) from None
        yield block, vectors


def prefetch(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; while one is used, the next is made in a thread."""
    with ThreadPoolExecutor(1) as thread:
        upcoming = thread.submit(_next, items)
        while ready := upcoming.result():
            upcoming = thread.submit(_next, items)
            yield ready[0]


def _next(items: Iterator[Item]) -> tuple[Item] | None:
    for item in items:
        return (item,)
    return None


def _tokenize(encoder: Encoder, start: int, texts: list[str]) -> TokenBlock:
    distinct = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    rows = np.fromiter((distinct[text] for text in texts), dtype=np.intp, count=len(texts))
    return TokenBlock(start, rows, encoder.tokenize(list(distinct)))
