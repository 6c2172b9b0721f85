"""The training rows of training.py: new ones for each round."""

import os
import random
from collections.abc import Sequence
from typing import Any

from training_run import Rows

from nearfar.data.rows import load_nli, nli_triplets
from nearfar.types import LABEL_NAMES

ROWS_OF_A_PREMISE = 3
"""Only premises with this number of rows are used, as nearly all in SNLI have."""


class Pool:
    """New rows of each kind for each round; starts again from the first row when they run out."""

    def __init__(self, steps: int, batch_size: int) -> None:
        specs = ("snli:dev",) if os.environ.get("NEARFAR_DATA") else ("microworld",)
        data = load_nli(specs)
        rows = [(row.premise, row.hypothesis, LABEL_NAMES[row.label]) for row in data.rows]
        premises: dict[str, list[tuple[str, ...]]] = {}
        for row in rows:
            premises.setdefault(row[0], []).append(row)
        groups = [group for group in premises.values() if len(group) == ROWS_OF_A_PREMISE]
        # A number that gives equally full batches, whether or not premises are kept together.
        self.steps, self.premises = steps, (steps + 1) * (batch_size // ROWS_OF_A_PREMISE)
        self.pairs = self.premises * ROWS_OF_A_PREMISE
        self.texts = (steps + 1) * batch_size
        shuffled = [row for group in groups for row in group]
        triplets: list[tuple[str, ...]] = list(dict.fromkeys(nli_triplets(data.rows)))
        sentences = list(dict.fromkeys((text,) for row in rows for text in row[:2]))
        self.sources = (
            f"{', '.join(specs)}: the {len(groups):,} premises with {ROWS_OF_A_PREMISE} pairs each; "
            f"{len(triplets):,} triplets; {len(sentences):,} sentences"
        )
        for rows_of_kind in (groups, shuffled, triplets, sentences):
            random.Random(0).shuffle(rows_of_kind)
        self._groups, self._shuffled, self._triplets, self._sentences = groups, shuffled, triplets, sentences

    def grouped(self, number: int) -> Rows:
        """Pairs, grouped by premise."""
        return [row for group in _part(self._groups, number, self.premises) for row in group]

    def shuffled(self, number: int) -> Rows:
        """The same number of pairs, shuffled."""
        return _part(self._shuffled, number, self.pairs)

    def triplets(self, number: int) -> Rows:
        """(premise, entailed hypothesis, contradicting hypothesis)."""
        return _part(self._triplets, number, self.texts)

    def sentences(self, number: int) -> Rows:
        """Distinct sentences."""
        return _part(self._sentences, number, self.texts)


def _part(rows: Sequence[Any], number: int, size: int) -> list[Any]:
    return [rows[place % len(rows)] for place in range(number * size, (number + 1) * size)]
