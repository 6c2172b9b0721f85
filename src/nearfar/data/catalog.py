"""Find the tables of a data set: in the local data folder first, then on the hub. No set is substituted for another.

A *spec* names a data set:

==============================  ====================================================================================
``snli``, ``sts12``             a named set (:data:`nearfar.data.named_sets.CATALOG`) with its default splits
``snli:dev``, ``snli:dev+test`` some of its splits, or subsets (``sts12:MSRpar``)
``mr``, ``wiki``                a named set that is one file, without splits
``path/to/rows.tsv``            a file, or a folder written by ``datasets``' ``save_to_disk`` (``folder:validation``)
``hub:owner/name:train``        a hub data set; ``hub:owner/name/config:train`` if it has several configs. ``hub:``
                                may be omitted if no file has that name
==============================  ====================================================================================

The environment variable ``NEARFAR_DATA`` names the local data folder, with ``nli/SNLI/dev.tsv``,
``sts/STS12/MSRpar.tsv`` and so on. A named set has precedence over a file of the same name; write ``./snli`` for the
file.
"""

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.data import files
from nearfar.data.named_sets import CATALOG, MIXTURES, NamedSet, RowKind, how_to_get
from nearfar.data.paths import as_path, is_file, is_folder, missing_file_error, nearest, status
from nearfar.data.sources import HUB_NAME, Part, Table, groups_of_part, open_table, without_pairs
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.data.fingerprints import Hashes


def find(spec: str, kind: RowKind | None = None) -> list[Table]:
    """Return the tables of ``spec`` (module docstring), splits or subsets in the requested order.

    ``kind`` is the kind of rows that are wanted, for a named set with rows of several kinds.

    Raises:
        NearfarError: a table was not found. The message names each location searched, the splits available there, and
            what to do.

    """
    name = spec.partition(":")[0]
    if (name in MIXTURES or name in CATALOG) and status(Path(name)) is not None:
        warnings.warn(
            f"{name}: the data set of this name is read, not what is here; for that, write ./{name}.", stacklevel=2
        )
    if name in MIXTURES:
        return [found for member in MIXTURES[name] for found in _find_named(member, parse(spec)[1], kind)]
    if name in CATALOG:
        return _find_named(*parse(spec), kind)
    return _find_unnamed(spec)


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
        columns = (entry.sentences[0], entry.sentences[1])
        hashes = partial(_pairs_of, entry.without, columns, os.environ.get("NEARFAR_DATA"))
        part = Part(columns, partial(without_pairs, hashes=hashes))
        return [replace(one, part=part) for one in found]
    return [_part_of(one, entry, entry.parts_by) for one in found] if entry.parts_by else found


def _part_of(found: Table, entry: NamedSet, column: str) -> Table:
    """The rows of a split that is a part of a file."""
    if found.name == "all":
        return found
    number = [name for name in entry.files if name != "all"].index(found.name)
    part = Part((column,), partial(groups_of_part, part=number))
    return replace(found, title=f"{found.title}:{found.name}", part=part)


@lru_cache(maxsize=4)
def _pairs_of(names: tuple[str, ...], columns: tuple[str, str], root: str | None) -> "Hashes":  # noqa: ARG001 - the key
    """The hashes of all pairs of named sets."""
    from nearfar.data.fingerprints import pair_hashes  # loads numpy

    tables = [found for name in names for found in _find_named(name, ())]
    return pair_hashes((str(first), str(second)) for table in tables for _, (first, second) in table.rows(columns))


def data_folder(entry: NamedSet) -> Path | None:
    """Return the folder of a named set: in the package, or in ``NEARFAR_DATA``; None if that is not set."""
    root = Path(__file__).parent if entry.packaged else os.environ.get("NEARFAR_DATA")
    return as_path(root) / entry.folder if root else None


def _find_tables(name: str, entry: NamedSet, requested: tuple[str, ...]) -> list[Table]:
    for split in requested if entry.files else ():
        if split not in entry.files:
            raise NearfarError(f"{name} has no split {split!r}. It has: {', '.join(entry.files)}.")
    splits = requested or entry.splits
    folder = data_folder(entry)
    paths = {split: folder / _file_name(entry, split) for split in splits} if folder else {}
    local = {split: path for split, path in paths.items() if is_file(path)}
    if "all" in entry.hub_splits and not requested and len(local) < len(splits):
        return [_find_on_hub(name, "all", folder, missing=[split for split in splits if split not in local])]
    return [
        _open_local(name, split, local[split], entry)
        if split in local
        else _find_on_hub(name, split, folder, missing=[split])
        for split in splits
    ]


def _open_local(name: str, split: str, path: Path, entry: NamedSet) -> Table:
    """The table of a file; one of the package has the title ``microworld:train``, the same on every machine."""
    title = f"{name}:{split}" if entry.packaged else str(path)
    return Table(title, path, plain=True, name=split, scale=entry.scale, sentences=entry.sentences)


def _file_name(entry: NamedSet, split: str) -> str:
    return entry.files.get(split, f"{split}.tsv")


def _find_on_hub(name: str, split: str, folder: Path | None, *, missing: Sequence[str]) -> Table:
    entry = CATALOG[name]
    if entry.hub is None:
        on_hub = "No hub copy is known." if split in entry.splits else "No hub copy of that split is known."
    elif split not in entry.hub_splits:
        on_hub = f"The hub data set {entry.hub} has no such split; it has: {', '.join(entry.hub_splits)}."
    else:
        try:
            return _adapt(open_table(f"hub:{entry.hub}", split=entry.hub_splits[split]), entry, split)
        except NearfarError as error:
            on_hub = f"{error} Go online once to download it, or set NEARFAR_DATA to a folder that has it."
    if folder is None:
        local, instead = "NEARFAR_DATA is not set, so no local folder was searched.", ""
    else:
        available = [] if entry.files else sorted(path.stem for path in folder.glob("*.tsv"))
        names = ", ".join(str(folder / _file_name(entry, split)) for split in missing)
        local = f"Missing: {names}{'' if is_folder(folder) else ' (the folder does not exist)'}."
        instead = f" Available: {name}:{'+'.join(available)}." if available else ""
    title = name if list(missing) == ["all"] else f"{name}:{'+'.join(missing)}"
    raise NearfarError(f"{title} was not found.\n  {local}{instead}\n  {on_hub}\n  {how_to_get(title)}")


def _adapt(table: Table, entry: NamedSet, split: str) -> Table:
    """Give a hub copy the columns and labels of the local files."""
    data, texts, labels = table.data, entry.hub_text, entry.hub_labels
    if entry.hub_columns and not isinstance(data, Path):
        data = data.rename_columns(dict(entry.hub_columns))
    return Table(table.title, data, texts, labels, name=split, scale=entry.scale, sentences=entry.sentences)


def _find_unnamed(spec: str) -> list[Table]:
    if not spec.strip():
        raise NearfarError("The name of the data set is empty; name a file or a data set.")
    path = as_path(spec)
    if status(path) is not None:
        return [replace(open_table(path), name=files.stem(path))]
    head, colon, rest = spec.rpartition(":")  # the last colon: a path may contain others
    if colon and head and status(as_path(head)) is not None:
        return _open_splits(head, _splits(rest, spec))
    name, colon, rest = spec.removeprefix("hub:").partition(":")  # the first colon: train[:1000] contains another
    splits = _splits(rest, spec) if colon else ()
    if spec.startswith("hub:"):
        return _open_splits(f"hub:{name}", splits)
    _check_hub_name(name)
    try:
        return _open_splits(f"hub:{name}", splits)
    except NearfarError as error:
        raise NearfarError(f"{name}: no such file or folder.\n  {error}") from error


def _open_splits(source: str, splits: tuple[str, ...]) -> list[Table]:
    if not splits:
        return [replace(open_table(source), name=source.rpartition("/")[2])]
    return [replace(open_table(source, split=split), name=split) for split in splits]


def _check_hub_name(name: str) -> None:
    # Report a mistyped path or name at once, without asking the hub.
    path = Path(name)
    known = files.is_known(path) or files.is_plain_text(path)
    if path.name == name and not known:
        hint, several = nearest(name, [*CATALOG, *MIXTURES]), name.split(",")
        if len(several) > 1 and all(one.strip() in CATALOG for one in several):
            hint = f" Separate names by spaces: {' '.join(one.strip() for one in several)}."
        raise NearfarError(
            f"{name}: neither a file nor a named data set.{hint} Named data sets: {', '.join([*CATALOG, *MIXTURES])}; "
            "a hub data set is owner/name."
        )
    if known or is_folder(path.parent) or not HUB_NAME.fullmatch(name):
        raise missing_file_error(path)
