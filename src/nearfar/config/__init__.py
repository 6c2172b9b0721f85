"""Every setting of every command, once: these frozen dataclasses are the flags, the TOML keys and the Python API.

A run is ``TrainConfig`` plus what its method adds; each method is one class, and its defaults are the paper's. The text
below a field is its ``--help``, the type of a field says what its values may be. A name is imported when it is asked
for, so that a command loads its own settings alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearfar.config.bounds import Cap, File
    from nearfar.config.files import (
        FINETUNE,
        FINETUNE_STUDY,
        build,
        check_keys,
        dump_toml,
        load_toml,
        method_of,
        unknown_name_message,
    )
    from nearfar.config.finetune import FinetuneConfig, FinetuneStudyConfig, split_list
    from nearfar.config.kim import BtConfig, BtSgOptConfig, SgConfig, SgOpt1Config, SgOpt2Config, SgOptConfig
    from nearfar.config.liao import AugmentConfig, SbertConfig, SclConfig
    from nearfar.config.methods import METHODS
    from nearfar.config.simcse import SimcseSupConfig, SimcseUnsupConfig
    from nearfar.config.texts import InfoNceConfig, RegressionConfig, SupconTextConfig
    from nearfar.config.training import RunConfig, TrainConfig, parse_seeds
    from nearfar.config.values import Settings, flag, format_value
    from nearfar.config.verbs import (
        BackTranslateConfig,
        CompareConfig,
        EncodeConfig,
        EnvConfig,
        EvaluateConfig,
        GeometryConfig,
        PredictConfig,
        ReportConfig,
    )

_EXPORTS_BY_MODULE = {
    "bounds": "Cap File",
    "files": "FINETUNE FINETUNE_STUDY build check_keys dump_toml load_toml method_of unknown_name_message",
    "finetune": "FinetuneConfig FinetuneStudyConfig split_list",
    "kim": "BtConfig BtSgOptConfig SgConfig SgOpt1Config SgOpt2Config SgOptConfig",
    "liao": "AugmentConfig SbertConfig SclConfig",
    "methods": "METHODS",
    "simcse": "SimcseSupConfig SimcseUnsupConfig",
    "texts": "InfoNceConfig RegressionConfig SupconTextConfig",
    "training": "RunConfig TrainConfig parse_seeds",
    "values": "Settings flag format_value",
    "verbs": "BackTranslateConfig CompareConfig EncodeConfig EnvConfig EvaluateConfig "
    "GeometryConfig PredictConfig ReportConfig",
}
_MODULE_OF = {name: module for module, names in _EXPORTS_BY_MODULE.items() for name in names.split()}

__all__ = [
    "FINETUNE",
    "FINETUNE_STUDY",
    "METHODS",
    "AugmentConfig",
    "BackTranslateConfig",
    "BtConfig",
    "BtSgOptConfig",
    "Cap",
    "CompareConfig",
    "EncodeConfig",
    "EnvConfig",
    "EvaluateConfig",
    "File",
    "FinetuneConfig",
    "FinetuneStudyConfig",
    "GeometryConfig",
    "InfoNceConfig",
    "PredictConfig",
    "RegressionConfig",
    "ReportConfig",
    "RunConfig",
    "SbertConfig",
    "SclConfig",
    "Settings",
    "SgConfig",
    "SgOpt1Config",
    "SgOpt2Config",
    "SgOptConfig",
    "SimcseSupConfig",
    "SimcseUnsupConfig",
    "SupconTextConfig",
    "TrainConfig",
    "build",
    "check_keys",
    "dump_toml",
    "flag",
    "format_value",
    "load_toml",
    "method_of",
    "parse_seeds",
    "split_list",
    "unknown_name_message",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'nearfar.config' has no attribute {name!r}")
    found = getattr(import_module(f"nearfar.config.{_MODULE_OF[name]}"), name)
    globals()[name] = found  # the next time it is simply there
    return found
