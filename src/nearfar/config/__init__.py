"""Every setting of every command, defined once: frozen dataclasses that give flags, TOML keys and the Python API.

Each training method is one class, which extends ``TrainConfig``; its defaults are the paper's. The docstring below a
field is the help of its flag, and the field's type defines which values are valid. Names are imported on first use, so
that a command loads only its own settings.
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
        DemoConfig,
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
    "verbs": "BackTranslateConfig CompareConfig DemoConfig EncodeConfig EnvConfig "
    "EvaluateConfig GeometryConfig PredictConfig ReportConfig",
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
    "DemoConfig",
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
    globals()[name] = found
    return found
