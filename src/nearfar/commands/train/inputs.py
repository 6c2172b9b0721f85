"""What a run reads: the rows of its objectives, and what chooses the best step.

Held-out rows are taken off the training rows. A second objective (``--second``, ``--sentences``) has settings and rows
of its own, and shares the settings of the run with the first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

from nearfar.commands.train.dev import DevSet, agreement_dev, held_out_dev, hold_out_sentences, load_dev_pairs, no_dev
from nearfar.config import TrainConfig, build, dump_toml, flag
from nearfar.data.hold_out import DEV
from nearfar.data.named_sets import OWN
from nearfar.methods.kim import SgOpt1Config
from nearfar.runs.fingerprints import fingerprint_rows
from nearfar.settings import load_method
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.data.hold_out import HeldOut
    from nearfar.methods.build import Rows

SHARED_SETTINGS = {field.name for field in fields(TrainConfig)} - {"batch_size", "data", "limit"}
"""Settings that a second objective shares with the first."""
Verify = Callable[[str, Callable[[], str]], None]
"""Records the fingerprint of an input by its name, and compares it with that of the run that is resumed."""


def second_objective_config(config: TrainConfig) -> TrainConfig | None:
    """The settings of the second objective that ``config`` asks for, or None.

    Its TOML file may set the method, its data and the method's own settings. The settings of the run (model, epochs,
    learning rate, ...) are the first objective's, and the batch size too unless the file has one. With ``sentences`` it
    is the recipe for sentences (docs/tables/recipes-sentences.md).

    Raises:
        NearfarError: no such method or file, or a key that belongs to the run.
    """
    names = ("output", "model", "seed", "dropout", "lora_rank", "matryoshka", "matryoshka_weights", "limit")
    shared = {name: getattr(config, name) for name in names}
    if config.sentences:
        recipe = {"views": "0-0", "data": config.sentences, "batch_size": SgOpt1Config.recipe_batch_size}
        adapters = {} if config.lora_rank is None else {"drift_weight": 0.0}  # adapters leave the weights as they are
        return build(SgOpt1Config, {**shared, **recipe, **adapters}, source=flag("sentences"))
    if config.second is None:
        return None
    try:
        kind, values = load_method(config.second)
    except NearfarError as error:
        raise NearfarError(f"--second: {error}") from error
    for key in values:
        if key in SHARED_SETTINGS:
            raise NearfarError(f"{config.second}: {key} belongs to the run; set it by {flag(key)}.")
    return build(kind, {**shared, "batch_size": config.batch_size, **values}, source=config.second)


def second_flag(config: TrainConfig) -> str:
    """The flag that asks for the second objective, with its value, for messages."""
    return f"--sentences {' '.join(config.sentences)}" if config.sentences else f"--second {config.second}"


def second_toml(config: TrainConfig) -> str:
    """The text of second.toml: the own settings of the second objective; empty without one."""
    second = second_objective_config(config)
    return "" if second is None else dump_toml(second, without=SHARED_SETTINGS)


@contextmanager
def second_objective_errors(config: TrainConfig) -> Iterator[None]:
    """Prefix errors with the flag of the second objective."""
    try:
        yield
    except NearfarError as error:
        raise NearfarError(f"{second_flag(config)}: {error}") from error


class TrainingData(NamedTuple):
    """The rows of a run's objectives, read before the encoder is loaded, so that errors in them are reported first."""

    first: "Rows"
    second: "Rows | None"
    used: Mapping[str, int | None]
    """The source of each objective's rows, in messages, and how many of them are used; None for all."""

    def texts_and_targets(self) -> "dict[str, tuple[Sequence[Sequence[object]], Sequence[object]]]":
        """The texts, and labels or scores, that are used; by their source."""
        both = zip(self.used.items(), (self.first, self.second), strict=False)
        return {
            what: (rows.rows[:limit], getattr(rows, "targets", None) or ())
            for (what, limit), rows in both
            if rows is not None
        }


def read_training_data(config: TrainConfig) -> TrainingData:
    """Read the rows of the objective, and of the second one where there is one.

    Sentences of a second objective that are called ``own`` are the texts of the first one's rows.

    Raises:
        NearfarError: rows that are missing or malformed.
    """
    from nearfar.methods.build import read_rows

    second, first = second_objective_config(config), read_rows(config)
    used = {f"--data {' '.join(config.data)}": config.limit}
    if second is None:
        return TrainingData(first, None, used)
    used[f"the data of {second_flag(config)}"] = second.limit
    with second_objective_errors(config):
        if not isinstance(second, SgOpt1Config) or OWN not in second.data:
            return TrainingData(first, read_rows(second), used)
        from nearfar.methods.kim import read_sentences

        return TrainingData(first, read_sentences(second, own=_texts(first.rows)), used)


class Inputs(NamedTuple):
    """The rows to train on, the dev set, and the held-out rows if there are any."""

    rows: TrainingData
    dev: DevSet
    held_out: "HeldOut | None"
    facts: list[str]
    """Sentences about the dev set and the held-out rows."""

    @property
    def dev_rows(self) -> Sequence[Sequence[object]]:
        """The texts of the dev set, row by row; empty where nothing chooses the step."""
        return self.dev.rows if self.held_out is None else self.held_out.text_rows(DEV)


def load_inputs(config: TrainConfig, verify: Verify | None = None) -> Inputs:
    """Read everything but the model. Without ``verify``, as in a dry run, nothing is recorded.

    Raises:
        NearfarError: rows or dev set are missing or malformed, or too few rows can be held out.
    """
    verify = verify or (lambda _what, _fingerprint: None)
    dev = None
    if config.evaluate_on is not None:
        dev = load_dev_pairs(config.evaluate_on)
        pairs = dev.rows
        verify(f"--evaluate-on {config.evaluate_on}", lambda: fingerprint_rows(pairs))
    data = read_training_data(config)
    for what, part in data.texts_and_targets().items():
        verify(what, lambda part=part: fingerprint_rows(*part))  # type: ignore[misc]
    if dev is not None:
        return Inputs(data, dev, None, dev.facts)

    from nearfar.data.hold_out import hold_out, kind_of

    source = " ".join(config.data)
    teacher = getattr(config, "teacher", None)
    if kind_of(data.first) is None and teacher is not None and config.hold_out != 0:
        return _agreement_inputs(config, data, teacher, verify)
    if kind_of(data.first) is None and config.hold_out:
        raise NearfarError(f"--hold-out {config.hold_out:g}: {source} has no positives, labels or scores to hold out.")
    if kind_of(data.first) is None or config.hold_out == 0:
        why = "of --hold-out 0" if config.hold_out == 0 else "plain sentences have no positives, labels or scores"
        dev = no_dev(_texts(data.first.rows[: config.limit]), why=why)
        return Inputs(data, dev, None, dev.facts)
    split = hold_out(_limited(data.first, config.limit), config.hold_out, source=source)
    second = _without_held_out(config, data.second, split.held_out.texts)
    verify("held-out rows", lambda: split.held_out.digest)
    data = data._replace(first=split.rows, second=second)
    return Inputs(data, held_out_dev(split.held_out), split.held_out, split.facts)


def _agreement_inputs(config: TrainConfig, data: TrainingData, teacher: str, verify: Verify) -> Inputs:
    """The inputs of distillation without a dev set: sentences are held out and scored by agreement with the teacher."""
    from nearfar.data.rows import TextData

    rows = _limited(data.first, config.limit)
    assert isinstance(rows, TextData)
    kept, held_out = hold_out_sentences(rows, config.hold_out, source=" ".join(config.data))
    second = _without_held_out(config, data.second, held_out)
    dev = agreement_dev(held_out, teacher)
    verify("held-out sentences", lambda: fingerprint_rows(held_out))
    return Inputs(data._replace(first=kept, second=second), dev, None, dev.facts)


def _without_held_out(config: TrainConfig, rows: "Rows | None", held_out: Sequence[str]) -> "Rows | None":
    """The rows of the second objective that have no held-out text."""
    from nearfar.data.hold_out import without_texts

    left = rows and without_texts(rows, held_out)
    if left is not None and not left.rows:
        source = " ".join(config.data)
        raise NearfarError(f"{second_flag(config)}: all of its rows have a text that is held out of {source}.")
    return left


def _texts(rows: Sequence[Sequence[object]]) -> list[str]:
    return [text for row in rows for text in row if isinstance(text, str)]


def _limited(rows: "Rows", limit: int | None) -> "Rows":
    """The first ``limit`` rows; most readers have stopped there already."""
    if limit is None or len(rows.rows) <= limit:
        return rows
    from nearfar.data.hold_out import take_rows

    return take_rows(rows, range(limit))
