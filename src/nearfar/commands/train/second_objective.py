"""The second objective of a run: its settings, and which of them it shares with the first."""

from dataclasses import fields
from typing import TYPE_CHECKING

from nearfar.config import TrainConfig, build, flag
from nearfar.config.files import load_method
from nearfar.data.named_sets import OWN
from nearfar.methods.build import has_default_batch_size
from nearfar.methods.kim import SgOpt1Config
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.methods.build import Rows

SHARED_SETTINGS = {field.name for field in fields(TrainConfig)} - {"batch_size", "data", "limit"}
"""Settings that a second objective shares with the first."""


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


def read_second(second: TrainConfig, first: "Rows") -> "Rows":
    """The rows of the second objective; sentences called ``own`` are the texts of the ``first`` one's rows.

    Raises:
        NearfarError: rows that are missing or malformed.
    """
    from nearfar.methods.build import read_rows

    if not isinstance(second, SgOpt1Config) or OWN not in second.data:
        return read_rows(second)
    from nearfar.methods.kim.build import read_sentences

    return read_sentences(second, own=[text for row in first.rows for text in row if isinstance(text, str)])


def second_flag(config: TrainConfig) -> str:
    """The flag that asks for the second objective, with its value, for messages."""
    return f"--sentences {' '.join(config.sentences)}" if config.sentences else f"--second {config.second}"


def may_shrink_batch(config: TrainConfig, second: TrainConfig | None = None) -> bool:
    """Whether the batches, of the ``second`` objective if there is one, may shrink to the number of rows.

    They may if the user did not set a batch size.
    """
    if second is None:
        return has_default_batch_size(config)
    return has_default_batch_size(second) or (second.batch_size == config.batch_size and has_default_batch_size(config))
