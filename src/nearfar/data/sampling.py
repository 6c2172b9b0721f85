"""Sample labelled rows: few-shot training sets, and rows held out for validation and test."""

import random
from collections.abc import Sequence

from nearfar.types import NearfarError


def draw(
    targets: Sequence[int], count: int, *, balanced: bool, seed: int | str, label_names: Sequence[str] = ()
) -> list[int]:
    """Return the indices of ``count`` rows, drawn without replacement, in ascending order: a few-shot sample.

    With ``balanced`` all labels have the same number of rows; if ``count`` is not a multiple of the number of labels,
    randomly chosen labels have one more. Otherwise labels keep their proportions in ``targets``
    (:func:`largest_remainder`), with at least one row each. Gunel et al. (2021) draw ten samples each of 20, 100 and
    1,000 rows for their few-shot results, and 20 rows of each of two labels for those of Table 7.

    The sample is a function of the arguments; neighbouring seeds give independent samples. ``label_names`` are for
    messages.

    Raises:
        NearfarError: ``count`` is below the number of labels or above the number of rows, or a label has too few rows
            for its share of a balanced sample.

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
    for index, (label, rows) in enumerate(rows_of.items()):
        if shares[index] == 0:
            shares[shares.index(max(shares))] -= 1
            shares[index] = 1
        if shares[index] > len(rows):
            name = repr(label_names[label]) if label_names else str(label)
            raise NearfarError(
                f"The label {name} has {len(rows)} rows, but a balanced sample of {count} needs {shares[index]}. "
                "Draw fewer rows, or keep the proportions of the labels."
            )
    return _sample(list(rows_of.values()), shares, generator)


def hold_out(targets: Sequence[int], count: int, *, seed: int | str) -> list[int]:
    """Return the indices of ``count`` rows to hold out, in ascending order, stratified by label.

    The only row of a label is never held out, and at most half of all other rows are, so that each label keeps at least
    one. The held-out rows may lack a rare label. Returns an empty list if no label has two rows.
    """
    groups = [rows for rows in _rows_of(targets).values() if len(rows) > 1]
    sizes = [len(rows) for rows in groups]
    generator = _generator(seed)
    return _sample(groups, largest_remainder(sizes, min(count, sum(sizes) // 2), generator), generator)


def largest_remainder(sizes: Sequence[int], count: int, generator: random.Random) -> list[int]:
    """Apportion ``count`` in proportion to ``sizes`` by the largest remainder method; the shares add up to ``count``.

    Each share is count x size / sum of sizes, rounded down; the rest goes, one each, to the largest fractions, with
    ties broken at random. If ``count`` is at most the sum, no share exceeds its size.

    >>> largest_remainder([60, 30, 11], 10, random.Random("1"))
    [6, 3, 1]
    """
    total = sum(sizes)
    shares = [count * size // total for size in sizes]
    order = generator.sample(range(len(sizes)), len(sizes))  # the sort is stable, so this order breaks ties
    by_fraction = sorted(order, key=lambda index: count * sizes[index] % total, reverse=True)
    for index in by_fraction[: count - sum(shares)]:
        shares[index] += 1
    return shares


def _rows_of(targets: Sequence[int]) -> dict[int, list[int]]:
    rows_of: dict[int, list[int]] = {label: [] for label in sorted(set(targets))}
    for row, label in enumerate(targets):
        rows_of[label].append(row)
    return rows_of


def _sample(groups: Sequence[Sequence[int]], shares: Sequence[int], generator: random.Random) -> list[int]:
    return sorted(row for rows, share in zip(groups, shares, strict=True) for row in generator.sample(rows, share))


def _generator(seed: int | str) -> random.Random:
    # A string seed is hashed with SHA-512, so the streams of neighbouring seeds are independent.
    return random.Random(f"{seed}")
