"""Read natural language inference rows (premise, hypothesis, label) from any source that the catalog can find."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Number

from nearfar.data.catalog import find
from nearfar.data.cells import normalize_whitespace, parse_number
from nearfar.data.columns import Location
from nearfar.data.named_sets import UNLABELLED
from nearfar.data.paths import shown
from nearfar.types import LABEL_NAMES, NearfarError, NliRow


@dataclass(frozen=True)
class NliData:
    """Labelled rows in the order of their sources, and statistics of what was read."""

    rows: list[NliRow]
    dropped: int
    """Number of rows dropped because they have no label (:data:`nearfar.data.named_sets.UNLABELLED`)."""
    counts: Mapping[str, int]
    """Label name -> number of rows."""
    sources: tuple[str, ...]
    """The location of each table and its number of rows, for display."""
    repaired: int
    """Number of fields whose control characters or irregular white space were replaced by single spaces."""
    held_out: int = 0
    """Number of rows that were taken out of ``rows``, to evaluate on."""


def load_nli(
    specs: str | Sequence[str],
    *,
    premise_column: str = "premise",
    hypothesis_column: str = "hypothesis",
    label_column: str = "label",
    label_order: Sequence[str] | None = None,
) -> NliData:
    """Read the tables of ``specs`` (see :mod:`nearfar.data.catalog`), one after the other.

    A label is entailment, neutral or contradiction, in upper or lower case, or the integer 0, 1 or 2. Integers mean
    these three in this order, as in SNLI and MultiNLI on the hub, unless ``label_order`` lists the names in another
    order. Data sets that declare class names are read by those names.

    Raises:
        NearfarError: a source cannot be found or read, an unknown label, an empty or non-string text (each with file
            and line), a table without a labelled row.

    """
    known = _known_labels(LABEL_NAMES if label_order is None else label_order)
    rows: list[NliRow] = []
    sources: list[str] = []
    dropped = repaired = 0
    for spec in [specs] if isinstance(specs, str) else specs:
        for found in find(spec):
            before, unlabelled = len(rows), 0

            def check(value: object, _: str, where: Location) -> int | None:
                nonlocal unlabelled
                label = _label(value, known, where)
                unlabelled += label is None
                return label

            for entry in found.table.entries((premise_column, hypothesis_column), label_column, check):
                repaired += entry.repaired
                rows.append(NliRow(entry.texts[0], entry.texts[1], entry.target))
            if len(rows) == before:
                raise NearfarError(
                    f"{found.table.title}: no labelled rows ({unlabelled} without a label were dropped)."
                )
            dropped += unlabelled
            counted = f"{len(rows) - before} rows, {unlabelled} more without a label dropped"
            note = found.note((premise_column, hypothesis_column, label_column))
            sources.append(f"{found.table.title}: {counted}{note}")
    if not rows:
        raise NearfarError("No NLI data set was named; name at least one, such as snli or microworld.")
    tally = Counter(row.label for row in rows)
    counts = {name: tally[label] for label, name in enumerate(LABEL_NAMES)}
    return NliData(rows, dropped, counts, tuple(sources), repaired)


def _known_labels(label_order: Sequence[str]) -> dict[str, int]:
    order = [name.lower() for name in label_order]
    if sorted(order) != sorted(LABEL_NAMES):
        raise NearfarError(f"label_order {list(label_order)} must list {', '.join(LABEL_NAMES)}, each once.")
    names = {name: label for label, name in enumerate(LABEL_NAMES)}
    return names | {str(integer): names[name] for integer, name in enumerate(order)}


def _label(value: object, known: Mapping[str, int], where: Location) -> int | None:
    text = (
        ""
        if value is None
        else normalize_whitespace(str(value)).lower()
        if isinstance(value, str | Number)
        else shown(value)
    )
    if (number := parse_number(value)).is_integer():
        text = str(int(number))  # 1, 1.0 and "1.0" are equal: an integer column with missing values becomes floats
    if text in UNLABELLED:
        return None
    if text not in known:
        integers = ", ".join(f"{key} as {LABEL_NAMES[label]}" for key, label in known.items() if key.isdigit())
        raise NearfarError(
            f"{where}: unknown label {shown(value)}. Known: {', '.join(LABEL_NAMES)}; and integers, by label_order or "
            f"else as in SNLI: {integers}. '-', -1 and empty mark a row without a label, which is dropped."
        )
    return known[text]
