"""What each method adds to a training run: one class a method, loaded when it is asked for."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearfar.config.training import TrainConfig

_CONFIG_CLASSES = {
    "sbert": ("liao", "SbertConfig"),
    "scl": ("liao", "SclConfig"),
    "augment": ("liao", "AugmentConfig"),
    "simcse-unsup": ("simcse", "SimcseUnsupConfig"),
    "simcse-sup": ("simcse", "SimcseSupConfig"),
    "sg": ("kim", "SgConfig"),
    "sg-opt1": ("kim", "SgOpt1Config"),
    "sg-opt2": ("kim", "SgOpt2Config"),
    "sg-opt": ("kim", "SgOptConfig"),
    "bt": ("kim", "BtConfig"),
    "bt+sg-opt": ("kim", "BtSgOptConfig"),
    "supcon-text": ("texts", "SupconTextConfig"),
    "regression": ("texts", "RegressionConfig"),
    "info-nce": ("texts", "InfoNceConfig"),
}


class _Methods(Mapping[str, "type[TrainConfig]"]):
    """Its names cost nothing; a class is imported when it is looked up."""

    def __getitem__(self, name: str) -> "type[TrainConfig]":
        module, kind = _CONFIG_CLASSES[name]
        found: type[TrainConfig] = getattr(import_module(f"nearfar.config.{module}"), kind)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_CONFIG_CLASSES)

    def __len__(self) -> int:
        return len(_CONFIG_CLASSES)

    def __contains__(self, name: object) -> bool:
        return name in _CONFIG_CLASSES


METHODS = _Methods()
"""Method -> the class of its settings."""
