"""The second objective of a run: its settings, and which of them it shares with the first."""

from dataclasses import fields

from nearfar.config import TrainConfig, build, flag
from nearfar.config.files import load_method
from nearfar.methods.build import has_default_batch_size
from nearfar.types import NearfarError

SHARED_SETTINGS = {field.name for field in fields(TrainConfig)} - {"batch_size", "data", "limit"}
"""Settings that a second objective shares with the first."""


def second_objective_config(config: TrainConfig) -> TrainConfig | None:
    """The settings of the second objective that ``config`` asks for, or None.

    Its TOML file may set the method, its data and the method's own settings. The settings of the run (model, epochs,
    learning rate, ...) are the first objective's, and the batch size too unless the file has one.

    Raises:
        NearfarError: no such method or file, or a key that belongs to the run.
    """
    if config.second is None:
        return None
    try:
        kind, values = load_method(config.second)
    except NearfarError as error:
        raise NearfarError(f"--second: {error}") from error
    for key in values:
        if key in SHARED_SETTINGS:
            raise NearfarError(f"{config.second}: {key} belongs to the run; set it by {flag(key)}.")
    names = ("output", "seed", "dropout", "lora_rank", "matryoshka", "matryoshka_weights", "batch_size", "limit")
    shared = {name: getattr(config, name) for name in names}
    return build(kind, {**shared, **values}, source=config.second)


def may_shrink_batch(config: TrainConfig, second: TrainConfig | None = None) -> bool:
    """Whether the batches, of the ``second`` objective if there is one, may shrink to the number of rows.

    They may if the user did not set a batch size.
    """
    if second is None:
        return has_default_batch_size(config)
    return has_default_batch_size(second) or (second.batch_size == config.batch_size and has_default_batch_size(config))
