"""Samples of labelled rows: few-shot training sets, and parts held out for validation and test."""

import random
from collections.abc import Sequence

from nearfar.types import NearfarError


def draw(
    targets: Sequence[int], count: int, *, balanced: bool, seed: int, label_names: Sequence[str] = ()
) -> list[int]:
    """Return the numbers of ``count`` rows, drawn without replacement, in ascending order: a few-shot sample.

    With ``balanced`` each label has as many rows as any other, or one more, by lot, where ``count`` is no multiple of
    the number of labels. Otherwise labels have their proportions in ``targets`` (:func:`largest_remainder`), and at
    least one row each. Gunel et al. (2021) draw samples of 20, 100 and 1,000 rows for their few-shot results, ten of
    each size, and 20 rows of each of two labels for those of Table 7.

    The sample is a function of the arguments alone; neighbouring seeds share nothing. ``label_names`` are for messages.

    Raises:
        NearfarError: ``count`` is below the number of labels or above that of the rows, or a label has too few rows for
            its share of a balanced sample.

    >>> targets = [0, 0, 0, 0, 0, 0, 1, 1, 1]
    >>> [sum(targets[row] for row in draw(targets, 6, balanced=balanced, seed=1)) for balanced in (True, False)]
    [3, 2]
    """
    rows_of = _rows_of(targets)
    if not len(rows_of) <= count <= len(targets):
        raise NearfarError(
            f"A sample of {count} rows cannot be drawn: it must be from {len(rows_of)}, the number of labels, to "
            f"{len(targets)}, the number of rows."
        )
    generator = _generator(seed)
    sizes = [len(rows) for rows in rows_of.values()]
    shares = largest_remainder([1 for _ in sizes] if balanced else sizes, count, generator)
    for place, (label, rows) in enumerate(rows_of.items()):
        if shares[place] == 0:
            shares[shares.index(max(shares))] -= 1
            shares[place] = 1
        if shares[place] > len(rows):
            name = repr(label_names[label]) if label_names else str(label)
            raise NearfarError(
                f"The label {name} has {len(rows)} rows, of which a balanced sample of {count} takes {shares[place]}. "
                "Draw fewer, or in the proportions of the labels."
            )
    return _sample(list(rows_of.values()), shares, generator)


def hold_out(targets: Sequence[int], count: int, *, seed: int | str) -> list[int]:
    """Return the numbers of ``count`` rows to hold out, in ascending order, labels in their proportions.

    A label with a single row keeps it, and at most half of all other rows are held out, so that each label is left with
    one at least. What is held out may lack a rare label. Returns no row where no label has two.
    """
    groups = [rows for rows in _rows_of(targets).values() if len(rows) > 1]
    sizes = [len(rows) for rows in groups]
    generator = _generator(seed)
    return _sample(groups, largest_remainder(sizes, min(count, sum(sizes) // 2), generator), generator)


def largest_remainder(sizes: Sequence[int], count: int, generator: random.Random) -> list[int]:
    """Return whole numbers that add up to ``count`` and are as near as can be to the proportions of ``sizes``.

    Each share is count x size / sum of sizes, rounded down; what is left over goes, one each, to the largest fractions,
    equal ones by lot. While ``count`` is not above the sum, no share is above its size.

    >>> largest_remainder([60, 30, 11], 10, random.Random("1"))
    [6, 3, 1]
    """
    total = sum(sizes)
    shares = [count * size // total for size in sizes]
    lots = generator.sample(range(len(sizes)), len(sizes))
    by_fraction = sorted(lots, key=lambda place: count * sizes[place] % total, reverse=True)  # stable: lots break ties
    for place in by_fraction[: count - sum(shares)]:
        shares[place] += 1
    return shares


def _rows_of(targets: Sequence[int]) -> dict[int, list[int]]:
    rows_of: dict[int, list[int]] = {label: [] for label in sorted(set(targets))}
    for row, label in enumerate(targets):
        rows_of[label].append(row)
    return rows_of


def _sample(groups: Sequence[Sequence[int]], shares: Sequence[int], generator: random.Random) -> list[int]:
    return sorted(row for rows, share in zip(groups, shares, strict=True) for row in generator.sample(rows, share))


def _generator(seed: int | str) -> random.Random:
    # Seeded by text: random.Random hashes it with SHA-512, so neighbouring seeds share nothing.
    return random.Random(f"{seed}")
