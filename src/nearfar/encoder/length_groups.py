"""Groups of texts with the same number of tokens, in which attention and pooling are dense tensor operations."""

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple


class LengthGroup(NamedTuple):
    """``num_texts`` neighbouring texts of ``length`` tokens each; ``start`` is the batch's index of the first token."""

    start: int
    num_texts: int
    length: int

    @property
    def span(self) -> slice:
        """The group's tokens within the batch."""
        return slice(self.start, self.start + self.num_texts * self.length)


def group_by_length(lengths: Iterable[int]) -> list[LengthGroup]:
    """Group neighbouring texts of equal length; ``lengths`` are those of concatenated texts, in order."""
    groups: list[LengthGroup] = []
    start = 0
    for length, run in groupby(lengths):
        groups.append(LengthGroup(start, len(list(run)), length))
        start = groups[-1].span.stop
    return groups
