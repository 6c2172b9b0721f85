"""From a method's settings to its rows, its batch size and the method itself: what all methods share."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TypeAlias

from nearfar.config.training import TrainConfig
from nearfar.config.values import flag
from nearfar.data.cells import MissingColumnError, fold_name
from nearfar.data.rows import TextData
from nearfar.data.sources import skipping_empty
from nearfar.methods.base import BuildContext, BuiltMethod
from nearfar.methods.mixture import describe_widths, train_at_widths
from nearfar.registry import find_entry
from nearfar.settings import method_of
from nearfar.types import MethodEntry, NearfarError

Rows: TypeAlias = TextData


def read_rows(config: TrainConfig) -> Rows:
    """Read the rows of the config's method.

    Raises:
        NearfarError: the method needs data and none is named; rows that are missing or malformed.
    """
    try:
        entry = _entry(config)
        assert entry.read_rows is not None
        with skipping_empty(config.skip_empty):
            rows: Rows = entry.read_rows(config)
    except MissingColumnError as error:
        flags = _column_flags(config, error.names)
        raise NearfarError(f"{str(error).removesuffix('.')}: {flags}" if flags else str(error)) from None
    return rows


def _column_flags(config: TrainConfig, names: Sequence[str]) -> str:
    """The flags of columns that a file with the columns ``names`` lacks, each with one that it has."""
    columns = {field.name: getattr(config, field.name) for field in fields(config) if field.name.endswith("_column")}
    known = set(map(fold_name, names))
    given = {name: column for name, column in columns.items() if column not in (None, "auto")}
    missing = [name for name, column in given.items() if fold_name(column) not in known]
    taken = set(map(fold_name, given.values()))
    free = [name for name in names if fold_name(name) not in taken]
    return " ".join(f"{flag(name)} {shlex.quote(column)}" for name, column in zip(missing, free, strict=False))


def build_method(config: TrainConfig, context: BuildContext, rows: Rows) -> BuiltMethod:
    """Build the method on its rows (:func:`read_rows`).

    Raises:
        NearfarError: whatever is wrong with rows or settings, before anything is trained.
    """
    entry = _entry(config)
    size, fitted = _fit_batch_size(config, rows, context, min_rows=entry.min_rows)
    assert entry.build is not None
    built: BuiltMethod = entry.build(config, replace(context, batch_size=size), rows)
    dim = context.encoder.encoder.dim
    method = train_at_widths(built.method, config, dim)
    if method.count_tokens is None:
        method = replace(method, count_tokens=context.encoder.lengths)  # its items are texts
    return built._replace(method=method, facts=[*built.facts, *fitted, *describe_widths(config, dim)])


def _entry(config: TrainConfig) -> MethodEntry:
    entry = find_entry(method_of(config))
    assert entry is not None
    return entry


def has_default_batch_size(config: TrainConfig) -> bool:
    """Whether the batch size is a default, the method's or that of its recipe: it may shrink to the number of rows."""
    default = next(field.default for field in fields(config) if field.name == "batch_size")
    return config.batch_size in (default, config.recipe_batch_size)


def _fit_batch_size(config: TrainConfig, rows: Rows, context: BuildContext, *, min_rows: int) -> tuple[int, list[str]]:
    """The batch size, of all processes together, and a fact if it is smaller than the requested one.

    Raises:
        NearfarError: the batch is larger than the number of rows and may not shrink; too few rows for any batch.
    """
    requested = context.batch_size
    limit = math.inf if config.limit is None else config.limit
    count = int(min(len(rows.rows), limit))
    number = "1 row" if count == 1 else f"{count:,} rows"
    where = f"{number} in {_names(config.data)}" + (f" (--limit {limit})" if count == limit else "")
    where += f" that are not held out ({rows.held_out:,} are)" if rows.held_out else ""
    if count < min_rows:
        raise NearfarError(
            f"there {'is' if count == 1 else 'are'} {where}; {method_of(config)} contrasts rows with each other, and "
            "needs 2 or more."
        )
    if requested <= count:
        return requested, []
    if not context.may_shrink_batch:
        among = "" if requested == config.batch_size else f" makes batches of {requested} in all processes"
        raise NearfarError(
            f"--batch-size {config.batch_size}{among}: there are {where}. Set it from {min_rows} to {count}."
        )
    return count, [f"batch size {count}: there are {where}, fewer than the default batch size of {requested}"]


def _names(specs: Sequence[str]) -> str:
    more = f" and {len(specs) - 3} more" if len(specs) > 3 else ""
    return ", ".join(specs[:3]) + more
