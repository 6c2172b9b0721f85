"""Batches that hold as many texts of one class as of another: how they are dealt, and when they can't be."""

import random
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from nearfar.types import NearfarError

Item = TypeVar("Item")


def distinct_by_class(texts: Sequence[tuple[str, ...]], targets: Sequence[float]) -> dict[float, list[int]]:
    """Return label -> the first row of each distinct text of that class, labels and rows in order of appearance."""
    first_rows: dict[float, dict[tuple[str, ...], int]] = {}
    for number, (row, label) in enumerate(zip(texts, targets, strict=True)):
        first_rows.setdefault(label, {}).setdefault(row, number)
    return {label: list(rows.values()) for label, rows in first_rows.items()}


def check_classes(classes: Mapping[float, Sequence[int]], texts: Sequence[tuple[str, ...]], batch_size: int) -> None:
    """Raise NearfarError unless batches of ``batch_size`` texts can hold two texts of each of two classes.

    That takes labels that are integers, two classes, two distinct texts in each class, and a batch size of 4.
    """
    if not classes or not all(float(label).is_integer() for label in classes):
        raise NearfarError("balanced batches need a label, an integer, for each row")
    if len(classes) < 2:
        raise NearfarError("balanced batches need rows of at least two classes; all rows are of one")
    for label, rows in classes.items():
        if len(rows) < 2:
            text = " / ".join(texts[rows[0]])
            raise NearfarError(f"label {label} has a single text, {text!r}; balanced batches need two of each class")
    if batch_size < 4:
        raise NearfarError(
            f"--batch-size is {batch_size}, but balanced batches hold two texts of each of two classes: "
            "it must be at least 4"
        )


def sample_balanced_batches(
    classes: Mapping[float, Sequence[int]], batch_size: int, steps: int, generator: random.Random
) -> list[list[int]]:
    """Return the rows of each of ``steps`` batches.

    A batch holds ``batch_size // len(classes)`` rows of each class or, where that is below 2, two rows of each of
    ``batch_size // 2`` classes. Classes that must wait get their turn in the next batches, and so do a class's rows:
    each is a shuffled deck, dealt to its end and then shuffled anew. No row comes twice in a batch; a class that has
    fewer rows than its share gives all of them.
    """
    share = max(2, batch_size // len(classes))
    labels = _CyclicSampler(list(classes), generator)
    samplers = {label: _CyclicSampler(rows, generator) for label, rows in classes.items()}
    return [
        [row for label in labels.draw(batch_size // share) for row in samplers[label].draw(share)] for _ in range(steps)
    ]


class _CyclicSampler(Generic[Item]):
    """Items dealt in shuffled order, over and over; no item comes twice in one draw."""

    def __init__(self, items: Sequence[Item], generator: random.Random) -> None:
        self._items, self._generator = items, generator
        self._left: list[Item] = []

    def draw(self, count: int) -> list[Item]:
        """Return ``count`` different items, or all of them where there are fewer."""
        count = min(count, len(self._items))
        drawn, self._left = self._left[:count], self._left[count:]
        if len(drawn) < count:
            again = list(self._items)
            self._generator.shuffle(again)
            fresh = [item for item in again if item not in drawn][: count - len(drawn)]
            self._left = [item for item in again if item not in fresh]
            drawn += fresh
        return drawn
