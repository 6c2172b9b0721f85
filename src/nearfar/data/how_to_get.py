"""How to get a named data set: the command that downloads it, or the place to download it from by hand."""

from nearfar.data.named_sets import CATALOG
from nearfar.data.public_sources import sources_of
from nearfar.data.published_rows import files_of, sets_of

WITH_SUBSETS = ("sts12", "sts13", "sts14", "sts15", "sts16")
"""The STS sets that have subsets."""


def how_to_get(name: str) -> str:
    """Return one sentence per named set of ``name``: a set, a mixture, a task, or a spec of one (``snli:dev``).

    For another name (a file, a hub data set) it says to check the name.

    >>> how_to_get("mr")
    'nearfar get-data mr downloads it.'
    """
    names = sets_of(name)
    if not names:
        return f"{name} is not a named data set: check the path, or the name of the hub data set."
    spec = name.partition(":")[2]
    return " ".join(_advice(one, spec) for one in names)


def _advice(name: str, splits: str) -> str:
    entry = CATALOG[name]
    if not is_public(name, splits):
        wanted = splits.split("+") if splits else entry.splits
        if entry.hub and set(wanted) <= set(entry.hub_splits):
            return f"The hub has it as {entry.hub}; it is downloaded on first use."
        return entry.advice or "No public source of it is known: save it as the file above, or name another split."
    text = f"nearfar get-data {name} downloads it"
    if name in WITH_SUBSETS and not splits:
        return f"{text} with its subsets, which the hub copy {entry.hub} lacks and the aggregates mean and wmean need."
    return f"{text}."


def is_public(name: str, splits: str = "") -> bool:
    """Whether ``nearfar get-data`` can download a named set or, with ``splits`` (``dev+test``), these splits of it."""
    entry = CATALOG[name]
    wanted = splits.split("+") if splits else list(entry.splits)
    if "all" in wanted and not entry.files:
        wanted = list(entry.splits)
    files = [f"{entry.folder}/{entry.files.get(split, f'{split}.tsv')}".removeprefix("/") for split in wanted]
    return all(file in files_of(name) and sources_of(file) for file in files)
