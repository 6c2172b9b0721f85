"""What a run reads: the rows of its objectives, with those that are held out.

Held-out rows are taken off the training rows. A second objective (``--second``, ``--sentences``) has settings and rows
of its own, and shares the settings of the run with the first.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial

from nearfar.commands.train.dev import DevSet, agreement_dev, held_out_dev, hold_out_sentences, no_dev, scored_dev
from nearfar.commands.train.recipes import FEW, FROM_SIMILAR, LABELLED
from nearfar.config.training import TrainConfig
from nearfar.config.values import flag, named_models
from nearfar.data import hold_out
from nearfar.data.cells import MissingColumnError
from nearfar.data.named_sets import OWN
from nearfar.data.rows import TextData, load_pairs
from nearfar.data.sources import skipping_empty
from nearfar.disk.model_folder import read_seen
from nearfar.encoder.weights import locate
from nearfar.methods.gunel import SupconTextConfig
from nearfar.methods.kim import SgOpt1Config, read_sentences
from nearfar.registry import find_entry
from nearfar.runs.fingerprints import fingerprint_rows
from nearfar.settings import build, load_method, method_of
from nearfar.types import MethodEntry, NearfarError

SHARED_SETTINGS = {setting.name for setting in fields(TrainConfig)} - {"batch_size", "data", "limit"}
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
    rows: TextData = field(default_factory=lambda: TextData([], None, (), 0, 0))
    """Its rows; none before they are read."""

    @property
    def source(self) -> str:
        """Where its rows come from, in messages."""
        return f"the data of {self.flag}" if self.flag else f"--data {' '.join(self.config.data)}"

    @property
    def named_models(self) -> dict[str, str]:
        """Flag -> the model that it names; the model to train is the first objective's."""
        own, of = ({}, " of --second") if self.flag else ({"model": self.config.model}, "")
        return {f"{flag(name)} {model}{of}": model for name, model in {**own, **named_models(self.config)}.items()}

    @property
    def texts(self) -> Sequence[Sequence[object]]:
        """The texts that are used, row by row."""
        return self.rows.rows[: self.config.limit]

    def fingerprint(self) -> str:
        """The fingerprint of the texts that are used, with their labels or scores."""
        return fingerprint_rows(self.texts, self.rows.targets or ())

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
        size = FROM_SIMILAR["sentences"].values["batch_size"]
        recipe = {"views": "0-0", "data": config.sentences, "batch_size": size}
        adapters = {} if config.lora_rank is None else {"drift_weight": 0.0}  # adapters leave the weights as they are
        second: TrainConfig = build(SgOpt1Config, {**shared, **recipe, **adapters}, source=flag("sentences"))
        return [first, Objective(second, f"--sentences {' '.join(config.sentences)}", weight)]
    if config.second is None:
        return [first]
    with Objective(config, "--second").errors():
        kind, values = load_method(config.second)
    for key in values:
        if key in SHARED_SETTINGS:
            raise NearfarError(f"{config.second}: {key} belongs to the run; set it by {flag(key)}.")
    second = build(kind, {**shared, "batch_size": config.batch_size, **values}, source=config.second)
    return [first, Objective(second, f"--second {config.second}", weight)]


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


def read_training_data(objectives: Sequence[Objective]) -> list[Objective]:
    """The objectives with their rows, which are read before the encoder, so that errors in them are reported first.

    Sentences of a second objective that are called ``own`` are the texts of the first one's rows.

    Raises:
        NearfarError: rows that are missing or malformed.
    """
    read: list[Objective] = []
    for objective in objectives:
        config = objective.config
        with objective.errors():
            if read and isinstance(config, SgOpt1Config) and OWN in config.data:
                rows: TextData = read_sentences(config, own=_texts(read[0].rows))
            else:
                rows = read_rows(config)
        read.append(replace(objective, rows=rows))
    return read


# --- all of it ---


def load_inputs(
    objectives: Sequence[Objective],
    verify: Verify = lambda _what, _fingerprint: None,
    *,
    in_folds: bool = False,
    leave_out: Sequence[str] = (),
) -> tuple[list[Objective], DevSet]:
    """Read everything but the model: the objectives with their rows, and what chooses the best step.

    Without ``verify``, as in a dry run, nothing is recorded. With ``in_folds``, rows of a small file are tested in
    folds (:func:`nearfar.data.hold_out.in_folds`) unless the config says what is held out. No row has one of the texts
    ``leave_out``.

    Raises:
        NearfarError: rows or dev set are missing or malformed, or too few rows can be held out.
    """
    config, dev = objectives[0].config, None
    if config.evaluate_on is not None:
        dev = scored_dev(load_pairs(config.evaluate_on), config.evaluate_on)
        verify(f"--evaluate-on {config.evaluate_on}", partial(fingerprint_rows, dev.rows))
    data = read_training_data(objectives)
    for objective in data:
        verify(objective.source, objective.fingerprint)
    if dev is not None:
        return data, dev

    rows, source = data[0].rows, " ".join(config.data)
    if config.limit is not None and len(rows.rows) > config.limit:  # most readers have stopped there already
        rows = hold_out.take_rows(rows, range(config.limit))
    if leave_out:
        data = _without(data, hold_out.without_texts(rows, leave_out), leave_out)
        return data, no_dev(_texts(data[0].rows), why="this is a fold")
    teacher, kind = getattr(config, "teacher", None), hold_out.kind_of(rows)
    no_score = kind is None and teacher is None
    patience = None if config.patience == type(config).patience else config.patience
    if no_score and config.hold_out:
        raise NearfarError(f"--hold-out {config.hold_out:g}: {source} has no positives, labels or scores to hold out.")
    if no_score or config.hold_out == 0:
        why = "plain sentences have no positives, labels or scores" if no_score else "of --hold-out 0"
        return data, no_dev(_texts(rows), why=why, patience=patience)
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
            return data, no_dev(_texts(rows), why="all rows are trained on", folds=folds, patience=patience)
    split = hold_out.hold_out(rows, config.hold_out, source=source, seen=seen)
    verify("held-out rows", lambda: split.held_out.digest)
    return _without(data, split.rows, split.held_out.texts), held_out_dev(split.held_out, split.facts)


def _without(objectives: Sequence[Objective], kept: TextData, held_out: Sequence[str]) -> list[Objective]:
    """The first objective with the rows ``kept``, a second one with those of its rows that have no held-out text."""
    first, *others = objectives
    others = [replace(objective, rows=hold_out.without_texts(objective.rows, held_out)) for objective in others]
    return [replace(first, rows=kept), *others]


def _texts(rows: TextData) -> list[str]:
    return [text for row in rows.rows for text in row if isinstance(text, str)]
