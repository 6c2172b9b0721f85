"""Find the tables of a data set: in the local data folder first, then on the hub. No set is substituted for another.

A *spec* names a data set:

==============================  ====================================================================================
``snli``, ``sts12``             a named set (:data:`nearfar.data.named_sets.CATALOG`) with its default splits
``snli:dev``, ``snli:dev+test`` some of its splits, or subsets (``sts12:MSRpar``)
``mr``, ``wiki``                a named set that is one file, without splits
``path/to/rows.tsv``            a file, or a folder written by ``datasets``' ``save_to_disk`` (``folder:validation``)
``hub:owner/name:train``        a hub data set; ``hub:owner/name/config:train`` if it has several configs
==============================  ====================================================================================

The environment variable ``NEARFAR_DATA`` names the local data folder, with ``nli/SNLI/dev.tsv``,
``sts/STS12/MSRpar.tsv`` and so on. A named set has precedence over a file of the same name; write ``./snli`` for the
file.
"""

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from nearfar.data import files
from nearfar.data.cells import Rows
from nearfar.data.named_sets import CATALOG, MIXTURES, NamedSet, RowKind, how_to_get
from nearfar.data.paths import as_path, missing_file_error
from nearfar.data.sources import Part, Table, open_table
from nearfar.disk.checks import path_errors
from nearfar.types import NearfarError
from nearfar.validation import nearest

LAST_GROUPS = 1000
"""The largest number of groups in the last part of a table."""


@path_errors()
def find(spec: str, kind: RowKind | None = None) -> list[Table]:
    """Return the tables of ``spec`` (module docstring), splits or subsets in the requested order.

    ``kind`` is the kind of rows that are wanted, for a named set with rows of several kinds.

    Raises:
        NearfarError: a table was not found. The message names each location searched, the splits available there, and
            what to do.

    """
    name = spec.partition(":")[0]
    if not (members := MIXTURES.get(name, (name,) * (name in CATALOG))):
        return _find_unnamed(spec)
    if Path(name).exists():
        warnings.warn(
            f"{name}: the data set of this name is read, not what is here; for that, write ./{name}.", stacklevel=2
        )
    return [found for member in members for found in _find_named(member, parse(spec)[1], kind)]


def parse(spec: str) -> tuple[str, tuple[str, ...]]:
    """Parse ``name:split+split`` into the name and its splits (none without a colon)."""
    name, colon, rest = spec.partition(":")
    return name, _splits(rest, spec) if colon else ()


def _splits(names: str, spec: str) -> tuple[str, ...]:
    splits = tuple(names.split("+"))
    if "" in splits or len(set(splits)) < len(splits):
        raise NearfarError(f"{spec}: after the colon, name each split once, as in snli:dev or snli:dev+test.")
    return splits


def _find_named(name: str, requested: tuple[str, ...], kind: RowKind | None = None) -> list[Table]:
    entry = CATALOG[name].of_kind(kind)
    found = _find_tables(name, entry, requested)
    if entry.without:
        part = Part(entry.sentences, partial(_without_pairs, names=entry.without, columns=entry.sentences))
        return [replace(table, part=part) for table in found]
    return [_part_of(table, entry, entry.parts_by) for table in found] if entry.parts_by else found


def _without_pairs(rows: Rows, *, names: Sequence[str], columns: Sequence[str]) -> Rows:
    """The rows whose last two values are no pair of the named sets, by :func:`nearfar.data.fingerprints.pair_hashes`.

    So pairs are equal in either order, and apart from case, spaces and punctuation.
    """
    from nearfar.data.fingerprints import pair_hashes  # loads numpy

    tables = [table for name in names for table in _find_named(name, ())]
    pairs = [(str(first), str(second)) for table in tables for _, (first, second) in table.rows(columns)]
    excluded = set(pair_hashes(pairs).tolist())
    for where, values in rows:
        if int(pair_hashes([(str(values[-2]), str(values[-1]))])[0]) not in excluded:
            yield where, values


def _part_of(found: Table, entry: NamedSet, column: str) -> Table:
    """The rows of a split that is a part of a file."""
    if found.name == "all":
        return found
    number = [name for name in entry.files if name != "all"].index(found.name)
    part = Part((column,), partial(_groups_of_part, part=number))
    return replace(found, title=f"{found.title}:{found.name}", part=part)


def _groups_of_part(rows: Rows, *, part: int) -> Rows:
    """The rows of a part by groups; a group is the rows with the same last value.

    Part 0 has all groups but the last ones, which are a fifth of all, at most 1,000; part 1 has the last ones; part 2
    as many before these, which are also in part 0.
    """
    read = list(rows)
    groups = list(dict.fromkeys(str(values[-1]) for _, values in read))
    count, size = len(groups), min(LAST_GROUPS, len(groups) // 5)
    start, stop = (count - part * size, count - (part - 1) * size) if part else (0, count - size)
    chosen = set(groups[start:stop])
    return (row for row in read if str(row[1][-1]) in chosen)


def data_folder(entry: NamedSet) -> Path | None:
    """Return the folder of a named set: in the package, or in ``NEARFAR_DATA``; None if that is not set."""
    root = Path(__file__).parent if entry.packaged else os.environ.get("NEARFAR_DATA")
    return as_path(root) / entry.folder if root else None


def _find_tables(name: str, entry: NamedSet, requested: tuple[str, ...]) -> list[Table]:
    for split in requested if entry.files else ():
        if split not in entry.files:
            raise NearfarError(f"{name} has no split {split!r}. It has: {', '.join(entry.files)}.")
    splits, folder = requested or entry.splits, data_folder(entry)
    paths = {split: folder / entry.files.get(split, f"{split}.tsv") for split in splits} if folder else {}
    missing = [split for split in splits if not (folder and paths[split].is_file())]
    if missing and "all" in entry.hub_splits and not requested:
        return [_find_on_hub(name, "all", folder, [paths[split] for split in missing if folder])]
    tables = []
    for split in splits:
        if split in missing:
            tables.append(_find_on_hub(name, split, folder, [paths[split]] if folder else []))
            continue
        title = f"{name}:{split}" if entry.packaged else str(paths[split])  # the same on every machine
        named = Table(title, paths[split], plain=True, name=split, scale=entry.scale, sentences=entry.sentences)
        tables.append(named)
    return tables


def _find_on_hub(name: str, split: str, folder: Path | None, missing: Sequence[Path]) -> Table:
    """The hub copy of a split, with the columns and labels of the local files."""
    entry = CATALOG[name]
    on_hub = f"The hub data set {entry.hub} has no such split; it has: {', '.join(entry.hub_splits)}."
    if entry.hub is None:
        on_hub = "No hub copy of it is known."
    elif split in entry.hub_splits:
        try:
            table = open_table(f"hub:{entry.hub}", split=entry.hub_splits[split])
            if not isinstance(table.data, Path):
                table = replace(table, data=table.data.rename_columns(dict(entry.hub_columns)))
            of_copy: dict[str, Any] = {"text_of": entry.hub_text, "labels": entry.hub_labels}
            return replace(table, name=split, scale=entry.scale, sentences=entry.sentences, **of_copy)
        except NearfarError as error:
            on_hub = f"{error} Go online once to download it, or set NEARFAR_DATA to a folder that has it."
    if folder is None:
        local = "NEARFAR_DATA is not set, so no local folder was searched."
    else:
        available = [] if entry.files else sorted(path.stem for path in folder.glob("*.tsv"))
        local = f"Missing: {', '.join(map(str, missing))}{'' if folder.is_dir() else ' (the folder does not exist)'}."
        local += f" Available: {name}:{'+'.join(available)}." if available else ""
    title = name if split == "all" else f"{name}:{split}"
    raise NearfarError(f"{title} was not found:\n  {local}\n  {on_hub}\n  {how_to_get(title)}")


def _find_unnamed(spec: str) -> list[Table]:
    if spec.startswith("hub:"):
        name, colon, rest = spec.removeprefix("hub:").partition(":")  # the first colon: train[:1000] has another
        return _open_splits(f"hub:{name}", _splits(rest, spec) if colon else ())
    path = as_path(spec)
    if path.exists():
        return [replace(open_table(path), name=files.stem(path))]
    head, colon, rest = spec.rpartition(":")  # the last colon: a path may contain others
    if colon and head and as_path(head).exists():
        return _open_splits(head, _splits(rest, spec))
    path = Path(spec.partition(":")[0])
    if len(path.parts) == 1 and not files.is_known(path) and not files.is_plain_text(path):
        names = [*CATALOG, *MIXTURES]
        raise NearfarError(
            f"{path}: neither a file nor a named data set.{nearest(path.name, names)} Named data sets, separated by "
            f"spaces: {', '.join(names)}; a hub data set is hub:owner/name."
        )
    raise missing_file_error(path)


def _open_splits(source: str, splits: tuple[str, ...]) -> list[Table]:
    if not splits:
        return [replace(open_table(source), name=source.rpartition("/")[2])]
    return [replace(open_table(source, split=split), name=split) for split in splits]
