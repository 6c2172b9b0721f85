"""The result of ``dedup``: counts, and a histogram of the similarity of each text to its nearest other text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

WIDTH = 0.05
"""Width of a bin of the histogram."""


class Bin(NamedTuple):
    """The texts whose nearest other text has a cosine from ``low`` up to ``low + WIDTH``."""

    low: float
    texts: int
    """Number of texts in the bin."""
    at_least: int
    """Number of texts in this and all higher bins."""
    first: str
    """A text of the bin whose cosine is the lowest: with a threshold of ``low``, it is merged with ``second``."""
    second: str
    """The nearest other text of ``first``."""
    similarity: float
    """Their cosine."""


@dataclass(frozen=True)
class DedupResult:
    """What ``nearfar dedup`` found."""

    rows: int
    """Number of rows in the input."""
    texts: int
    """Number of distinct texts."""
    histogram: tuple[Bin, ...]
    """Bins of the similarity to the nearest other text, from the highest; empty bins at both ends are left out."""
    threshold: float | None
    """The threshold, None if there was none."""
    kept: int | None
    """Number of rows kept; None without a threshold."""
    groups: int | None
    """Number of groups of at least two rows; None without a threshold."""
    largest: int | None
    """Number of rows in the largest group; None without a threshold."""


def histogram(
    texts: Sequence[str], scores: Float32[np.ndarray, " texts"], others: Int64[np.ndarray, " texts"]
) -> tuple[Bin, ...]:
    """The histogram of the cosines ``scores`` of each text with its nearest other text ``others``."""
    if len(texts) < 2:
        return ()
    bins = round(1 / WIDTH)
    numbers = np.clip(np.floor(np.round(scores.astype(np.float64) / WIDTH, 4)), -bins, bins - 1).astype(int)
    found = []
    for number in range(int(numbers.max()), int(numbers.min()) - 1, -1):
        inside = np.flatnonzero(numbers == number)
        if not len(inside):
            found.append(Bin(number * WIDTH, 0, int((numbers >= number).sum()), "", "", math.nan))
            continue
        lowest = inside[scores[inside].argmin()]
        found.append(
            Bin(
                number * WIDTH,
                len(inside),
                int((numbers >= number).sum()),
                texts[lowest],
                texts[others[lowest]],
                float(scores[lowest]),
            )
        )
    return tuple(found)
