"""Class-balanced batches: sampling them, and checking that the data allows them."""

import random
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from nearfar.types import NearfarError

Item = TypeVar("Item")


def distinct_by_class(texts: Sequence[tuple[str, ...]], targets: Sequence[float]) -> dict[float, list[int]]:
    """Return label -> the first row index of each distinct text with that label, in order of appearance."""
    first_rows: dict[float, dict[tuple[str, ...], int]] = {}
    for number, (row, label) in enumerate(zip(texts, targets, strict=True)):
        first_rows.setdefault(label, {}).setdefault(row, number)
    return {label: list(rows.values()) for label, rows in first_rows.items()}


def check_classes(classes: Mapping[float, Sequence[int]], texts: Sequence[tuple[str, ...]], batch_size: int) -> None:
    """Raise NearfarError unless batches of ``batch_size`` texts can hold two texts of each of two classes.

    This needs integer labels, two classes, two distinct texts per class, and a batch size of at least 4.
    """
    if not classes or not all(float(label).is_integer() for label in classes):
        raise NearfarError("balanced batches need an integer label for each row")
    if len(classes) < 2:
        raise NearfarError("balanced batches need at least two classes; all rows have the same label")
    for label, rows in classes.items():
        if len(rows) < 2:
            text = " / ".join(texts[rows[0]])
            raise NearfarError(f"label {label} has a single text, {text!r}; balanced batches need two texts per class")
    if batch_size < 4:
        raise NearfarError(
            f"--batch-size is {batch_size}, but must be at least 4: balanced batches hold two texts of each of two "
            "classes"
        )


def sample_balanced_batches(
    classes: Mapping[float, Sequence[int]], batch_size: int, steps: int, generator: random.Random
) -> list[list[int]]:
    """Return the row indices of each of ``steps`` batches.

    A batch holds ``batch_size // len(classes)`` rows of each class or, if that is below 2, two rows of each of
    ``batch_size // 2`` classes. Classes, and the rows of each class, are drawn from shuffled lists, which are used up
    before they are shuffled again. No row occurs twice in a batch; a class with fewer rows than its share contributes
    all of them.
    """
    share = max(2, batch_size // len(classes))
    labels = _CyclicSampler(list(classes), generator)
    samplers = {label: _CyclicSampler(rows, generator) for label, rows in classes.items()}
    return [
        [row for label in labels.draw(batch_size // share) for row in samplers[label].draw(share)] for _ in range(steps)
    ]


class _CyclicSampler(Generic[Item]):
    """Draws items in shuffled order, over and over; no item occurs twice in one draw."""

    def __init__(self, items: Sequence[Item], generator: random.Random) -> None:
        self._items, self._generator = items, generator
        self._left: list[Item] = []

    def draw(self, count: int) -> list[Item]:
        """Return ``count`` different items, or all items if there are fewer."""
        count = min(count, len(self._items))
        drawn, self._left = self._left[:count], self._left[count:]
        if len(drawn) < count:
            reshuffled = list(self._items)
            self._generator.shuffle(reshuffled)
            added = [item for item in reshuffled if item not in drawn][: count - len(drawn)]
            self._left = [item for item in reshuffled if item not in added]
            drawn += added
        return drawn
