"""From a method's settings to its rows, its batch size and the method itself: what all methods share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeAlias

from nearfar.config.files import method_of
from nearfar.config.training import TrainConfig
from nearfar.config.values import flag
from nearfar.data.batching import NliBatches, TextBatches
from nearfar.data.files import MissingColumnError
from nearfar.data.nli import NliData
from nearfar.data.rows import TextData
from nearfar.encoder.teacher import TeacherVectors
from nearfar.encoder.training_encoder import TrainingEncoder
from nearfar.methods.base import Method
from nearfar.methods.matryoshka import describe_widths, train_at_widths
from nearfar.methods.roles import Roles
from nearfar.registry import MethodEntry, find_entry
from nearfar.types import NearfarError

Rows: TypeAlias = NliData | TextData


class BuiltMethod(NamedTuple):
    """A method, ready to train."""

    method: Method
    facts: list[str]
    """Sources and number of the rows, in words."""
    extra_losses: tuple[tuple[Method, float], ...] = ()
    """Further losses on the same batches, and their weights."""
    teachers: tuple[TeacherVectors, ...] = ()
    """Vectors of other encoders, which are computed before the first step."""


@dataclass(frozen=True)
class BuildContext:
    """What a builder gets beside the settings and the rows."""

    encoder: TrainingEncoder
    batch_size: int
    """Rows in a batch, of all processes together."""
    may_shrink_batch: bool = False
    """Whether the batch size may shrink to the number of rows."""

    def batches(
        self,
        config: TrainConfig,
        loaded: TextData,
        *,
        balanced: bool = False,
        min_batch_size: int = 2,
        roles: Roles | None = None,
        distinct_texts: bool = False,
    ) -> TextBatches:
        """Tokenize the texts, and batch their rows.

        With ``roles``, the first column has the queries, the others the documents.
        """
        self.encoder.read(loaded.rows if roles is None else roles.rows(loaded.rows))
        targets = loaded.targets
        return TextBatches(
            loaded.rows,
            self.batch_size,
            config.seed,
            targets,
            balanced=balanced,
            min_batch_size=min_batch_size,
            distinct_texts=distinct_texts,
        )


def read_rows(config: TrainConfig) -> Rows:
    """Read the rows of the config's method.

    Raises:
        NearfarError: the method needs data and none is named; rows that are missing or malformed.
    """
    try:
        rows: Rows = _entry(config).load_reader()(config)
    except MissingColumnError as error:
        flags = ", ".join(flag(field.name) for field in fields(config) if field.name.endswith("_column"))
        raise NearfarError(f"{str(error).removesuffix('.')}: {flags}" if flags else str(error)) from None
    return rows


def build_method(config: TrainConfig, context: BuildContext, rows: Rows) -> BuiltMethod:
    """Build the method on its rows (:func:`read_rows`).

    Raises:
        NearfarError: whatever is wrong with rows or settings, before anything is trained.
    """
    entry = _entry(config)
    size, fitted = _fit_batch_size(config, rows, context, min_rows=entry.min_rows)
    built: BuiltMethod = entry.load_builder()(config, replace(context, batch_size=size), rows)
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


def require_data(config: TrainConfig) -> tuple[str, ...]:
    """The data that ``config`` names, for a method without default data.

    Raises:
        NearfarError: it names none.
    """
    if not config.data:
        raise NearfarError(
            f"{method_of(config)} has no default data; name some with --data FILE, or, for a second objective, as "
            "data in its TOML file."
        )
    return config.data


def text_facts(loaded: TextData) -> list[str]:
    """Sources and number of the rows, in words."""
    facts = [*loaded.sources, f"{len(loaded.rows):,} rows"]
    if loaded.dropped:
        facts.append(f"{loaded.dropped:,} rows were left out: repeated, or without information")
    if loaded.repaired:
        facts.append(f"{loaded.repaired} fields had control characters or irregular white space, now single spaces")
    return facts


def nli_facts(loaded: NliData, batches: NliBatches) -> list[str]:
    """Sources, number and labels of NLI rows, and what their batches do with them, in words."""
    counts = ", ".join(f"{count:,} {label}" for label, count in loaded.counts.items())
    facts = [*loaded.sources, f"{len(loaded.rows):,} rows: {counts}", f"{len(batches.premises):,} premises"]
    if len(batches.rows) < len(loaded.rows):
        facts.append(f"the first {len(batches.rows):,} rows are used")
    if loaded.repaired:
        facts.append(f"{loaded.repaired} fields had control characters or irregular white space, now single spaces")
    if batches.oversized:
        facts.append(f"{batches.oversized} premises have more rows than a batch, and make batches of their own")
    return facts


def initializer_range(backbone: Any) -> float:
    """Standard deviation of the initial weights in the encoder's family, which its heads take too."""
    std: float = getattr(backbone.config, "initializer_range", 0.02)
    return std
