"""What a run reads: the rows of its sets, with those that are held out.

Held-out rows are taken off the rows of the first set. Further sets have a method, settings and rows of their own, and
share the settings of the run with the first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np

from nearfar.commands.train.choose import choose_of_set
from nearfar.commands.train.dev import DevSet, agreement_dev, held_out_dev, hold_out_sentences, no_dev, scored_dev
from nearfar.commands.train.recipes import FEW, LABELLED
from nearfar.config.training import SETTINGS_OF_SETS, TrainConfig
from nearfar.config.values import as_lists, flag, named_models
from nearfar.data import hold_out
from nearfar.data.cells import MissingColumnError
from nearfar.data.named_sets import OWN
from nearfar.data.rows import TextData, load_pairs
from nearfar.data.sources import skipping_empty
from nearfar.disk.model_folder import read_seen
from nearfar.encoder.weights import locate
from nearfar.methods.gunel import SupconTextConfig
from nearfar.methods.kim import KimConfig, SgConfig, read_sentences
from nearfar.registry import METHODS, find_entry
from nearfar.runs.fingerprints import fingerprint_rows
from nearfar.settings import as_table, build, method_of
from nearfar.types import MethodEntry, NearfarError
from nearfar.validation import unknown_name_message

SHARED_SETTINGS = {setting.name for setting in fields(TrainConfig)} - SETTINGS_OF_SETS
"""Settings of the run, which all sets share."""
Verify = Callable[[str, Callable[[], str]], None]
"""Records the fingerprint of an input by its name, and compares it with that of the run that is resumed."""


@dataclass(frozen=True)
class TrainingSet:
    """One of the sets of rows of a run, and how it is trained on."""

    config: TrainConfig
    number: int = 1
    rows: TextData = field(default_factory=lambda: TextData([], None, (), 0, 0))
    """Its rows; none before they are read."""

    @property
    def prefix(self) -> str:
        """What errors and facts about a further set begin with; empty for the first."""
        return f"set {self.number}, {' '.join(self.config.data)}: " if self.number > 1 else ""

    @property
    def source(self) -> str:
        """Where its rows come from, in messages."""
        return f"{f'set {self.number}, ' if self.number > 1 else ''}--data {' '.join(self.config.data)}"

    @property
    def named_models(self) -> dict[str, str]:
        """Flag -> the model that it names; the model to train is the first set's."""
        own, of = ({}, f" of set {self.number}") if self.number > 1 else ({"model": self.config.model}, "")
        return {f"{flag(name)} {model}{of}": model for name, model in {**own, **named_models(self.config)}.items()}

    @property
    def table(self) -> dict[str, object]:
        """The settings of a further set, as a TOML table has them."""
        return as_table(self.config, without=SHARED_SETTINGS)

    @property
    def texts(self) -> Sequence[Sequence[object]]:
        """The texts that are used, row by row."""
        return self.rows.rows[: self.config.limit]

    def fingerprint(self) -> str:
        """The fingerprint of the texts that are used, with their labels or scores."""
        return fingerprint_rows(self.texts, self.rows.targets or ())

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Say of an error in a further set which one it is."""
        try:
            yield
        except NearfarError as error:
            if not self.prefix:
                raise
            raise NearfarError(f"{self.prefix}{error}") from error


def resolve_sets(config: TrainConfig) -> list[TrainingSet]:
    """The set of rows of ``config``, and its further ones.

    The table of a further set may have the settings that its method adds, and :data:`SETTINGS_OF_SETS`; all others are
    those of the run, and so is the batch size unless the table has one. Without a method, it has the one, and the
    settings, that are recommended for its rows and the start.

    Raises:
        NearfarError: no such method, a key that belongs to the run or that the method does not have, or rows whose
            columns do not say what they are.
    """
    further = (_set_config(config, table, f"set {number}") for number, table in enumerate(config.sets, start=2))
    return [TrainingSet(one, number) for number, one in enumerate([config, *further], start=1)]


def _set_config(config: TrainConfig, table: Mapping[str, Any], source: str) -> TrainConfig:
    """The settings of the further set of a table."""
    own = as_lists(TrainConfig, table)
    method = own.pop("method", None)
    for key in own:
        if key in SHARED_SETTINGS:
            raise NearfarError(f"{source}: {key} belongs to the run; set it by {flag(key)}.")
    if method is None:
        try:
            method, recommended = choose_of_set(own.get("data") or (), own, model=config.model)
        except NearfarError as error:
            raise NearfarError(f"{source}: {error}") from error
        own = {**recommended, **own}
    if method not in METHODS:
        raise NearfarError(f"{source}: {unknown_name_message(str(method), METHODS, what='method')}")
    names = ("output", "model", "seed", "dropout", "lora_rank", "matryoshka", "matryoshka_weights", "limit")
    shared = {name: getattr(config, name) for name in (*names, "batch_size")}
    if issubclass(METHODS[method], KimConfig) and config.lora_rank is not None:
        shared["drift_weight"] = 0.0  # adapters leave the weights as they are
    return build(METHODS[method], {**shared, **own}, source=source)


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
        flags = " ".join(flag(one.name) for one in fields(config) if one.name.endswith("_column"))
        raise NearfarError(f"{error} Name them by {flags}.") from None
    return rows


def read_training_data(sets: Sequence[TrainingSet]) -> list[TrainingSet]:
    """The sets with their rows, which are read before the encoder, so that errors in them are reported first.

    Sentences of a further set that are called ``own`` are the texts of the first one's rows.

    Raises:
        NearfarError: rows that are missing or malformed.
    """
    read: list[TrainingSet] = []
    for training_set in sets:
        config = training_set.config
        with training_set.errors():
            if read and isinstance(config, SgConfig) and OWN in config.data:
                rows: TextData = read_sentences(config, own=_texts(read[0].rows.rows))
            else:
                rows = read_rows(config)
        read.append(replace(training_set, rows=rows))
    return read


# --- all of it ---


def load_inputs(
    sets: Sequence[TrainingSet],
    verify: Verify = lambda _what, _fingerprint: None,
    *,
    in_folds: bool = False,
    leave_out: Sequence[str] = (),
) -> tuple[list[TrainingSet], DevSet]:
    """Read everything but the model: the sets with their rows, and what chooses the best step.

    Without ``verify``, as in a dry run, nothing is recorded. With ``in_folds``, rows of a small file are tested in
    folds (:func:`nearfar.data.hold_out.in_folds`) unless the config says what is held out. No row has one of the texts
    ``leave_out``.

    Raises:
        NearfarError: rows or dev set are missing or malformed, or too few rows can be held out.
    """
    config, dev = sets[0].config, None
    if config.evaluate_on is not None:
        dev = scored_dev(load_pairs(config.evaluate_on), config.evaluate_on)
        verify(f"--evaluate-on {config.evaluate_on}", partial(fingerprint_rows, dev.rows))
    data = read_training_data(sets)
    for training_set in data:
        verify(training_set.source, training_set.fingerprint)
    if dev is not None:
        return data, dev

    rows, source = data[0].rows, " ".join(config.data)
    if config.limit is not None and len(rows.rows) > config.limit:  # most readers have stopped there already
        rows = hold_out.take_rows(rows, np.arange(config.limit))
    if leave_out:
        data = _without(data, hold_out.without_texts(rows, leave_out), leave_out)
        return data, no_dev(_texts(data[0].rows.rows), why="this is a fold")
    teacher, kind = getattr(config, "teacher", None), hold_out.kind_of(rows)
    no_score = kind is None and teacher is None
    patience = None if config.patience == type(config).patience else config.patience
    if no_score and config.hold_out:
        raise NearfarError(f"--hold-out {config.hold_out:g}: {source} has no positives, labels or scores to hold out.")
    if no_score or config.hold_out == 0:
        why = "plain sentences have no positives, labels or scores" if no_score else "of --hold-out 0"
        return data, no_dev(_texts(rows.rows), why=why, patience=patience)
    if kind is None:  # sentences are scored by the agreement with the teacher
        kept, sentences = hold_out_sentences(rows, config.hold_out, source=source)
        verify("held-out sentences", partial(fingerprint_rows, sentences))
        return _without(data, kept, sentences), agreement_dev(sentences, str(teacher))

    seen, labelled = read_seen(locate(config.model)), kind == "labelled"
    if config.hold_out is None and (not labelled or len(rows.rows) < FEW[LABELLED]):
        tested = in_folds and (not labelled or isinstance(config, SupconTextConfig))
        folds = hold_out.in_folds(rows, source=source, seen=seen) if tested else None
        if folds is not None:
            verify("held-out rows", lambda: folds.held_out.digest)
        if folds is not None or labelled:
            why = "all rows are trained on"
            return data, no_dev(_texts(rows.rows), why=why, folds=folds, patience=patience)
    split = hold_out.hold_out(rows, config.hold_out, source=source, seen=seen)
    verify("held-out rows", lambda: split.held_out.digest)
    return _without(data, split.rows, split.held_out.texts), held_out_dev(split.held_out, split.facts)


def _without(sets: Sequence[TrainingSet], kept: TextData, held_out: Sequence[str]) -> list[TrainingSet]:
    """The first set with the rows ``kept``, and the others with those of their rows that have no held-out text."""
    first, *others = sets
    others = [replace(other, rows=hold_out.without_texts(other.rows, held_out)) for other in others]
    return [replace(first, rows=kept), *others]


def _texts(rows: Sequence[Sequence[object]]) -> Iterator[str]:
    return (text for row in rows for text in row if isinstance(text, str))
