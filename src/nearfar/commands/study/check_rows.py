"""Reads the rows of a study's trainings before its first job, so that an error in them costs no time."""

from collections.abc import Iterable
from dataclasses import fields, replace

from nearfar.commands.study.expand import Cell, data_sources
from nearfar.commands.study.sources import HUB
from nearfar.config.study import Study
from nearfar.config.training import TrainConfig
from nearfar.data.named_sets import VOCABULARY
from nearfar.jobs import JobStore
from nearfar.registry import name_of
from nearfar.types import NearfarError


def check_rows(study: Study, cells: Iterable[Cell], store: JobStore) -> None:
    """Read the training rows of all unfinished cells, equal readings once; nothing is downloaded.

    Rows on the hub, and texts of a model's vocabulary, are not read.

    Raises:
        NearfarError: rows that are missing or malformed, or that a method cannot read; it names the row of the study.
    """
    from nearfar.commands.train.inputs import read_training_data

    checked: set[object] = set()
    for cell in cells:
        for job, config in cell.trainings:
            read = replace(config, sentences=tuple(spec for spec in config.sentences if spec != VOCABULARY))
            if store.is_finished(job) or not _is_here(read) or (key := _reading(read)) in checked:
                continue
            checked.add(key)
            try:
                read_training_data(read)
            except NearfarError as error:
                raise NearfarError(f"{study.file}: row {cell.row_id!r}: train: {error}") from error


def _is_here(config: TrainConfig) -> bool:
    """Whether the rows of all objectives are on this machine and independent of a model."""
    return all(one.fingerprint != HUB and one.spec != VOCABULARY for one in data_sources(config))


def _reading(config: TrainConfig) -> object:
    """What decides how rows are read: the method, and all settings but numbers, of which only the limit does."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    named = {name: value for name, value in values.items() if type(value) not in (int, float) or name == "limit"}
    return name_of(type(config)), tuple(sorted((name, repr(value)) for name, value in named.items()))
