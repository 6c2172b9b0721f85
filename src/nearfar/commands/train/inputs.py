"""What a run reads: training rows, and what chooses the best step. Held-out rows are taken off the training rows."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nearfar.commands.train.dev import DevSet, held_out_dev, load_dev_pairs, no_dev
from nearfar.commands.train.prepare import TrainingData, read_training_data
from nearfar.config import TrainConfig
from nearfar.data.held_out import DEV
from nearfar.runs.fingerprints import fingerprint_rows
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.data.held_out import HeldOut
    from nearfar.methods.build import Rows

Verify = Callable[[str, Callable[[], str]], None]
"""Records the fingerprint of an input by its name, and compares it with that of the run that is resumed."""


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
    """Read everything but the model.

    Raises:
        NearfarError: rows or dev set are missing or malformed, or too few rows can be held out.
    """
    verify = verify or _ignore
    dev = None
    if config.evaluate_on is not None:
        dev = load_dev_pairs(config.evaluate_on)
        pairs = dev.rows
        verify(f"--evaluate-on {config.evaluate_on}", lambda: fingerprint_rows(pairs))
    data = read_training_data(config)
    for what, part in data.fingerprint_inputs(config).items():
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
        dev = no_dev(
            [text for row in data.first.rows[: config.limit] for text in row if isinstance(text, str)], why=why
        )
        return Inputs(data, dev, None, dev.facts)
    split = hold_out(_limited(data.first, config.limit), config.hold_out, source=source)
    second = _without_held_out(config, data.second, split.held_out.texts)
    verify("held-out rows", lambda: split.held_out.digest)
    return Inputs(TrainingData(split.rows, second), held_out_dev(split.held_out), split.held_out, split.facts)


def _agreement_inputs(config: TrainConfig, data: TrainingData, teacher: str, verify: Verify) -> Inputs:
    """The inputs of distillation without a dev set: sentences are held out and scored by agreement with the teacher."""
    from nearfar.commands.train.agreement import agreement_dev, hold_out_sentences
    from nearfar.data.rows import TextData

    rows = _limited(data.first, config.limit)
    assert isinstance(rows, TextData)
    held_out = hold_out_sentences(rows, config.hold_out, source=" ".join(config.data))
    second = _without_held_out(config, data.second, held_out.texts)
    dev = agreement_dev(held_out.texts, teacher)
    verify("held-out sentences", lambda: fingerprint_rows(held_out.texts))
    return Inputs(TrainingData(held_out.rows, second), dev, None, dev.facts)


def _without_held_out(config: TrainConfig, rows: "Rows | None", held_out: Sequence[str]) -> "Rows | None":
    """The rows of the second objective that have no held-out text."""
    from nearfar.commands.train.second_objective import second_flag
    from nearfar.data.hold_out import without_texts

    left = rows and without_texts(rows, held_out)
    if left is not None and not left.rows:
        source = " ".join(config.data)
        raise NearfarError(f"{second_flag(config)}: all of its rows have a text that is held out of {source}.")
    return left


def _ignore(what: str, fingerprint: Callable[[], str]) -> None:
    """Of a dry run, nothing is recorded."""


def _limited(rows: "Rows", limit: int | None) -> "Rows":
    """The first ``limit`` rows; most readers have stopped there already."""
    if limit is None or len(rows.rows) <= limit:
        return rows
    from nearfar.data.hold_out import take_rows

    return take_rows(rows, range(limit))
