"""The rows of training.py: fresh ones for each round."""

import os
import random
from collections.abc import Sequence
from typing import Any

from training_run import Rows

from nearfar.data.nli import load_nli
from nearfar.data.triplets import nli_triplets
from nearfar.types import LABEL_NAMES

ROWS_OF_A_PREMISE = 3
"""Premises with so many rows are used, as nearly all of SNLI's have."""


class Pool:
    """Fresh rows for each round of each kind; from the first again where they run out."""

    def __init__(self, steps: int, batch_size: int) -> None:
        specs = ("snli:dev",) if os.environ.get("NEARFAR_DATA") else ("microworld",)
        data = load_nli(specs)
        rows = [(row.premise, row.hypothesis, LABEL_NAMES[row.label]) for row in data.rows]
        premises: dict[str, list[tuple[str, ...]]] = {}
        for row in rows:
            premises.setdefault(row[0], []).append(row)
        groups = [group for group in premises.values() if len(group) == ROWS_OF_A_PREMISE]
        # As many as fill every batch alike, whether premises are kept together or not.
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
        for several in (groups, shuffled, triplets, sentences):
            random.Random(0).shuffle(several)
        self._groups, self._shuffled, self._triplets, self._sentences = groups, shuffled, triplets, sentences

    def grouped(self, number: int) -> Rows:
        """Pairs, all those of a premise together."""
        return [row for group in _part(self._groups, number, self.premises) for row in group]

    def shuffled(self, number: int) -> Rows:
        """As many pairs, of any premises."""
        return _part(self._shuffled, number, self.pairs)

    def triplets(self, number: int) -> Rows:
        """Premise, what it entails, what contradicts it."""
        return _part(self._triplets, number, self.texts)

    def sentences(self, number: int) -> Rows:
        """Distinct sentences."""
        return _part(self._sentences, number, self.texts)


def _part(rows: Sequence[Any], number: int, size: int) -> list[Any]:
    return [rows[place % len(rows)] for place in range(number * size, (number + 1) * size)]
