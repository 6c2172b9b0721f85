"""What a run reads: the rows of its objectives, and what chooses the best step.

Held-out rows are taken off the training rows. A second objective (``--second``, ``--sentences``) has settings and rows
of its own, and shares the settings of the run with the first.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from nearfar.commands.train.dev import DevSet, agreement_dev, held_out_dev, hold_out_sentences, load_dev_pairs, no_dev
from nearfar.commands.train.recipes import FEW_LABELLED
from nearfar.config.training import TrainConfig
from nearfar.config.values import flag, named_models
from nearfar.data.cells import MissingColumnError, fold_name
from nearfar.data.hold_out import DEV
from nearfar.data.named_sets import OWN
from nearfar.data.rows import TextData
from nearfar.data.sources import skipping_empty
from nearfar.methods.gunel import SupconTextConfig
from nearfar.methods.kim import SgOpt1Config
from nearfar.registry import find_entry
from nearfar.runs.fingerprints import fingerprint_rows
from nearfar.settings import build, dump_toml, load_method, method_of
from nearfar.types import MethodEntry, NearfarError

if TYPE_CHECKING:
    from nearfar.data.hold_out import HeldOut

SHARED_SETTINGS = {field.name for field in fields(TrainConfig)} - {"batch_size", "data", "limit"}
"""Settings that a second objective shares with the first."""
Verify = Callable[[str, Callable[[], str]], None]
"""Records the fingerprint of an input by its name, and compares it with that of the run that is resumed."""


@dataclass(frozen=True)
class Objective:
    """One of the objectives of a run."""

    config: TrainConfig
    flag: str = ""
    """What asks for it as a second objective: ``--second`` or ``--sentences``, with the value; empty for the first."""
    weight: float = 1.0

    @property
    def source(self) -> str:
        """Where its rows come from, in messages."""
        return f"the data of {self.flag}" if self.flag else f"--data {' '.join(self.config.data)}"

    @property
    def named_models(self) -> dict[str, str]:
        """Flag -> the model that it names; the model to train is not among them."""
        of = " of --second" if self.flag else ""
        return {f"{flag(name)} {model}{of}": model for name, model in named_models(self.config).items()}

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Prefix errors with the flag of a second objective."""
        try:
            yield
        except NearfarError as error:
            if not self.flag:
                raise
            raise NearfarError(f"{self.flag}: {error}") from error


def resolve_objectives(config: TrainConfig) -> list[Objective]:
    """The objective of ``config``, and the second one that it asks for, if it does.

    The TOML file of a second objective may set the method, its data and the method's own settings. The settings of the
    run (model, epochs, learning rate, ...) are the first objective's, and the batch size too unless the file has one.
    With ``sentences`` it is the recipe for sentences (docs/measured/sentences.md).

    Raises:
        NearfarError: no such method or file, or a key that belongs to the run.
    """
    first, weight = Objective(config), config.second_weight
    names = ("output", "model", "seed", "dropout", "lora_rank", "matryoshka", "matryoshka_weights", "limit")
    shared = {name: getattr(config, name) for name in names}
    if config.sentences:
        recipe = {"views": "0-0", "data": config.sentences, "batch_size": SgOpt1Config.recipe_batch_size}
        adapters = {} if config.lora_rank is None else {"drift_weight": 0.0}  # adapters leave the weights as they are
        second: TrainConfig = build(SgOpt1Config, {**shared, **recipe, **adapters}, source=flag("sentences"))
        return [first, Objective(second, f"--sentences {' '.join(config.sentences)}", weight)]
    if config.second is None:
        return [first]
    try:
        kind, values = load_method(config.second)
    except NearfarError as error:
        raise NearfarError(f"--second: {error}") from error
    for key in values:
        if key in SHARED_SETTINGS:
            raise NearfarError(f"{config.second}: {key} belongs to the run; set it by {flag(key)}.")
    second = build(kind, {**shared, "batch_size": config.batch_size, **values}, source=config.second)
    return [first, Objective(second, f"--second {config.second}", weight)]


def second_toml(objectives: Sequence[Objective]) -> str:
    """The text of second.toml: the own settings of a second objective; empty without one."""
    return "".join(dump_toml(objective.config, without=SHARED_SETTINGS) for objective in objectives[1:])


class ObjectiveRows(NamedTuple):
    """An objective with its rows."""

    objective: Objective
    rows: TextData

    @property
    def texts(self) -> Sequence[Sequence[object]]:
        """The texts that are used, row by row."""
        return self.rows.rows[: self.objective.config.limit]

    def fingerprint(self) -> str:
        """The fingerprint of the texts that are used, with their labels or scores."""
        return fingerprint_rows(self.texts, getattr(self.rows, "targets", None) or ())


def entry_of(config: TrainConfig) -> MethodEntry:
    """How the method of a config reads its rows, and how it is built."""
    entry = find_entry(method_of(config))
    assert entry is not None
    return entry


def read_rows(config: TrainConfig) -> TextData:
    """Read the rows of the config's method.

    Raises:
        NearfarError: the method needs data and none is named; rows that are missing or malformed.
    """
    read = entry_of(config).read_rows
    assert read is not None
    try:
        with skipping_empty(config.skip_empty):
            rows: TextData = read(config)
    except MissingColumnError as error:
        flags = _column_flags(config, error.names)
        raise NearfarError(f"{str(error).removesuffix('.')}: {flags}" if flags else str(error)) from None
    return rows


def _column_flags(config: TrainConfig, names: Sequence[str]) -> str:
    """The flags of columns that a file with the columns ``names`` lacks, each with one that it has."""
    columns = {field.name: getattr(config, field.name) for field in fields(config) if field.name.endswith("_column")}
    given = {name: fold_name(column) for name, column in columns.items() if column not in (None, "auto")}
    missing = [name for name, column in given.items() if column not in map(fold_name, names)]
    free = [name for name in names if fold_name(name) not in given.values()]
    return " ".join(f"{flag(name)} {shlex.quote(column)}" for name, column in zip(missing, free, strict=False))


def read_training_data(objectives: Sequence[Objective]) -> list[ObjectiveRows]:
    """Read the rows of the objectives, before the encoder is loaded, so that errors in them are reported first.

    Sentences of a second objective that are called ``own`` are the texts of the first one's rows.

    Raises:
        NearfarError: rows that are missing or malformed.
    """
    from nearfar.methods.kim import read_sentences

    data: list[ObjectiveRows] = []
    for objective in objectives:
        config = objective.config
        with objective.errors():
            if data and isinstance(config, SgOpt1Config) and OWN in config.data:
                rows: TextData = read_sentences(config, own=_texts(data[0].rows.rows))
            else:
                rows = read_rows(config)
        data.append(ObjectiveRows(objective, rows))
    return data


class Inputs(NamedTuple):
    """The rows to train on, the dev set, and the held-out rows if there are any."""

    data: list[ObjectiveRows]
    dev: DevSet
    held_out: "HeldOut | None" = None


def load_inputs(
    objectives: Sequence[Objective],
    verify: Verify = lambda _what, _fingerprint: None,
    *,
    in_folds: bool = False,
    leave_out: Sequence[str] = (),
) -> Inputs:
    """Read everything but the model. Without ``verify``, as in a dry run, nothing is recorded.

    With ``in_folds``, rows of a small file are tested in folds (:func:`nearfar.data.hold_out.in_folds`) unless the
    config says what is held out. No row has one of the texts ``leave_out``.

    Raises:
        NearfarError: rows or dev set are missing or malformed, or too few rows can be held out.
    """
    config = objectives[0].config
    dev = None
    if config.evaluate_on is not None:
        dev = load_dev_pairs(config.evaluate_on)
        verify(f"--evaluate-on {config.evaluate_on}", partial(fingerprint_rows, dev.rows))
    data = read_training_data(objectives)
    for part in data:
        verify(part.objective.source, part.fingerprint)
    if dev is not None:
        return Inputs(data, dev)

    from nearfar.data import hold_out

    rows, source = data[0].rows, " ".join(config.data)
    if config.limit is not None and len(rows.rows) > config.limit:  # most readers have stopped there already
        rows = hold_out.take_rows(rows, range(config.limit))
    if leave_out:
        data = _without_held_out(data, hold_out.without_texts(rows, leave_out), leave_out)
        return Inputs(data, no_dev(_texts(data[0].rows.rows), why="this is a fold"))
    teacher, kind = getattr(config, "teacher", None), hold_out.kind_of(rows)
    if kind is None and teacher is None and config.hold_out:
        raise NearfarError(f"--hold-out {config.hold_out:g}: {source} has no positives, labels or scores to hold out.")
    if config.hold_out == 0 or (kind is None and teacher is None):
        why = "of --hold-out 0" if config.hold_out == 0 else "plain sentences have no positives, labels or scores"
        return Inputs(data, no_dev(_texts(rows.rows), why=why))
    if kind is None:  # sentences are scored by the agreement with the teacher
        assert teacher is not None
        kept, sentences = hold_out_sentences(rows, config.hold_out, source=source)
        data = _without_held_out(data, kept, sentences)
        dev = agreement_dev(sentences, teacher)
        verify("held-out sentences", partial(fingerprint_rows, sentences))
        return Inputs(data, dev)
    return _tested(data, rows, verify, in_folds=in_folds)


def _tested(data: list[ObjectiveRows], rows: TextData, verify: Verify, *, in_folds: bool) -> Inputs:
    """Hold out some of the ``rows`` of the first objective, or test all of a small file in folds."""
    from nearfar.data import hold_out
    from nearfar.disk.model_folder import read_seen
    from nearfar.encoder.weights import locate

    config = data[0].objective.config
    kind, source, seen = hold_out.kind_of(rows), " ".join(config.data), read_seen(locate(config.model))
    if config.hold_out is None and (kind != "labelled" or len(rows.rows) < FEW_LABELLED):
        last = no_dev(_texts(rows.rows), why="all rows are trained on")
        tested = in_folds and (kind != "labelled" or isinstance(config, SupconTextConfig))
        folds = hold_out.in_folds(rows, source=source, seen=seen) if tested else None
        if folds is not None:
            last = replace(last, facts=[*last.facts, *folds.facts])
            verify("held-out rows", lambda: folds.held_out.digest)
            return Inputs(data, last, folds.held_out)
        if kind == "labelled":
            return Inputs(data, last)
    split = hold_out.hold_out(rows, config.hold_out, source=source, seen=seen)
    held_out = split.held_out
    data = _without_held_out(data, split.rows, held_out.texts)
    verify("held-out rows", lambda: held_out.digest)
    dev = replace(held_out_dev(held_out), rows=held_out.text_rows(DEV), facts=split.facts)
    return Inputs(data, dev, held_out)


def _without_held_out(data: Sequence[ObjectiveRows], kept: TextData, held_out: Sequence[str]) -> list[ObjectiveRows]:
    """The first objective with the rows ``kept``, a second one with those of its rows that have no held-out text."""
    from nearfar.data.hold_out import without_texts

    first, *others = data
    left = [first._replace(rows=kept)]
    for objective, rows in others:
        left.append(ObjectiveRows(objective, without_texts(rows, held_out)))
        if not left[-1].rows.rows:
            source = " ".join(first.objective.config.data)
            raise NearfarError(f"{objective.flag}: all of its rows have a text that is held out of {source}.")
    return left


def _texts(rows: Sequence[Sequence[object]]) -> list[str]:
    return [text for row in rows for text in row if isinstance(text, str)]
