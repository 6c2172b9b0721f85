"""From a method's settings to its rows, and to a batch size that they allow. No model."""

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import TypeAlias

from nearfar.config import (
    BtConfig,
    BtSgOptConfig,
    InfoNceConfig,
    RegressionConfig,
    SbertConfig,
    SgConfig,
    SimcseSupConfig,
    SimcseUnsupConfig,
    SupconTextConfig,
    TrainConfig,
    method_of,
)
from nearfar.data.nli import NliData, load_nli
from nearfar.data.rows import TextData, load_labelled, load_scored, load_sentences
from nearfar.data.triplets import load_triplets, load_tuples
from nearfar.types import NearfarError

Rows: TypeAlias = NliData | TextData


def read_rows(config: TrainConfig) -> Rows:  # noqa: PLR0911, one for each kind of rows
    """Read the rows of the config's method: NLI rows for those of Liao 2021, else texts.

    Raises:
        NearfarError: rows that cannot be had, or that are malformed.
    """
    match config:
        case SbertConfig():
            return load_nli(
                config.data,
                premise_column=config.premise_column,
                hypothesis_column=config.hypothesis_column,
                label_column=config.label_column,
            )
        case SimcseSupConfig():
            return load_triplets(config.data, limit=config.limit)
        case BtConfig() | BtSgOptConfig():
            columns = (config.sentence_column, config.translation_column)
            return load_tuples(_require_data(config), columns=columns, limit=config.limit)
        case SimcseUnsupConfig() | SgConfig():
            return load_sentences(config.data, column=config.text_column, limit=config.limit)
        case InfoNceConfig():
            negative = (config.negative_column,) if config.negative_column else ()
            pairs = (config.anchor_column, config.positive_column, *negative)
            return load_tuples(_require_data(config), columns=pairs, limit=config.limit)
        case SupconTextConfig():
            return load_labelled(
                _require_data(config),
                text_column=config.text_column,
                label_column=config.label_column,
                limit=config.limit,
            )
        case RegressionConfig():
            scored = (config.first_column, config.second_column, config.score_column)
            return load_scored(config.data, columns=scored, limit=config.limit)
    raise NearfarError(f"{type(config).__name__} names no method.")


def has_default_batch_size(config: TrainConfig) -> bool:
    """Whether the batch size is the method's default, which shrinks to the rows that there are."""
    return any(field.name == "batch_size" and field.default == config.batch_size for field in fields(config))


def fit_batch_size(config: TrainConfig, rows: Rows, requested: int, *, may_shrink_batch: bool) -> tuple[int, list[str]]:
    """Return the rows of a batch, of all processes together, and a fact where they are fewer than ``requested``.

    Raises:
        NearfarError: more than there are rows, unless the batch ``may_shrink_batch``; too few rows for any batch.
    """
    limit = math.inf if config.limit is None else config.limit
    count = int(min(len(rows.rows), limit))
    min_batch_size = 1 if isinstance(config, SbertConfig | RegressionConfig) else 2
    where = f"{_rows(count)} in {_names(config.data)}" + (f" (--limit {limit})" if count == limit else "")  # type: ignore[attr-defined]
    if count < min_batch_size:
        raise NearfarError(
            f"there {'is' if count == 1 else 'are'} {where}; {method_of(config)} contrasts rows with each other, and "
            "needs 2 or more."
        )
    if requested <= count:
        return requested, []
    if not may_shrink_batch:
        among = "" if requested == config.batch_size else f" makes batches of {requested} in all processes"
        raise NearfarError(
            f"--batch-size {config.batch_size}{among}: there are {where}. Set it from {min_batch_size} to {count}."
        )
    return count, [f"batch size {count}: there are {where}, fewer than the default batch size of {requested}"]


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _names(specs: Sequence[str]) -> str:
    more = f" and {len(specs) - 3} more" if len(specs) > 3 else ""
    return ", ".join(specs[:3]) + more


def _require_data(config: BtConfig | BtSgOptConfig | InfoNceConfig | SupconTextConfig) -> tuple[str, ...]:
    if not config.data:
        raise NearfarError(
            f"{method_of(config)} has no data of its own; name some with --data FILE, or, for a second objective, as "
            "data in its TOML file."
        )
    return config.data
