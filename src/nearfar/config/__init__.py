"""Every setting of every command, defined once: frozen dataclasses that give flags, TOML keys and the Python API.

Each training method is one class, which extends ``TrainConfig``; its defaults are the paper's. The docstring below a
field is the help of its flag, and the field's type defines which values are valid. Names are imported on first use, so
that a command loads only its own settings.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearfar.config.bounds import Cap, File
    from nearfar.config.encode import EncodeConfig
    from nearfar.config.export import ExportConfig
    from nearfar.config.finetune import FinetuneConfig
    from nearfar.config.geometry import GeometryConfig
    from nearfar.config.mining import DedupConfig, MineConfig
    from nearfar.config.search import SearchConfig
    from nearfar.config.study import ReproduceConfig, StudyConfig
    from nearfar.config.training import RunConfig, TrainConfig
    from nearfar.config.values import Settings, flag
    from nearfar.config.verbs import (
        BackTranslateConfig,
        CompareConfig,
        DemoConfig,
        EnvConfig,
        EvaluateConfig,
        GetDataConfig,
        PredictConfig,
        PushConfig,
        ReportConfig,
        SoupConfig,
        StaticConfig,
    )
    from nearfar.methods.distill import DistillConfig
    from nearfar.methods.gunel import SupconTextConfig
    from nearfar.methods.kim import BtConfig, BtSgOptConfig, SgConfig, SgOpt1Config, SgOpt2Config, SgOptConfig
    from nearfar.methods.liao import AugmentConfig, SbertConfig, SclConfig
    from nearfar.methods.nli_order import NliOrderConfig
    from nearfar.methods.regression import RegressionConfig
    from nearfar.methods.simcse import InfoNceConfig, SimcseSupConfig, SimcseUnsupConfig
    from nearfar.registry import FINETUNE, METHODS
    from nearfar.settings import build, check_keys, dump_toml, load_toml, method_of
    from nearfar.validation import format_value, unknown_name_message

_NAMES = {
    "config.bounds": "Cap File",
    "config.encode": "EncodeConfig",
    "config.export": "ExportConfig",
    "config.finetune": "FinetuneConfig",
    "config.geometry": "GeometryConfig",
    "config.mining": "DedupConfig MineConfig",
    "config.search": "SearchConfig",
    "config.study": "ReproduceConfig StudyConfig",
    "config.training": "RunConfig TrainConfig",
    "config.values": "Settings flag",
    "config.verbs": "BackTranslateConfig CompareConfig DemoConfig EnvConfig EvaluateConfig GetDataConfig PredictConfig "
    "PushConfig ReportConfig SoupConfig StaticConfig",
    "methods.distill": "DistillConfig",
    "methods.gunel": "SupconTextConfig",
    "methods.kim": "BtConfig BtSgOptConfig SgConfig SgOpt1Config SgOpt2Config SgOptConfig",
    "methods.liao": "AugmentConfig SbertConfig SclConfig",
    "methods.nli_order": "NliOrderConfig",
    "methods.regression": "RegressionConfig",
    "methods.simcse": "InfoNceConfig SimcseSupConfig SimcseUnsupConfig",
    "registry": "FINETUNE METHODS",
    "settings": "build check_keys dump_toml load_toml method_of",
    "validation": "format_value unknown_name_message",
}
_MODULES = {name: f"nearfar.{module}" for module, names in _NAMES.items() for name in names.split()}
__all__ = ["FINETUNE", "METHODS", "AugmentConfig", "BackTranslateConfig", "BtConfig", "BtSgOptConfig", "Cap"]
__all__ += ["CompareConfig", "DedupConfig", "DemoConfig", "DistillConfig", "EncodeConfig", "EnvConfig"]
__all__ += ["EvaluateConfig", "ExportConfig", "File", "FinetuneConfig", "GeometryConfig", "GetDataConfig"]
__all__ += ["InfoNceConfig", "MineConfig", "NliOrderConfig", "PredictConfig", "PushConfig", "RegressionConfig"]
__all__ += ["ReportConfig", "ReproduceConfig", "RunConfig", "SbertConfig", "SclConfig", "SearchConfig", "Settings"]
__all__ += ["SgConfig", "SgOpt1Config", "SgOpt2Config", "SgOptConfig", "SimcseSupConfig", "SimcseUnsupConfig"]
__all__ += ["SoupConfig", "StaticConfig", "StudyConfig", "SupconTextConfig", "TrainConfig", "build", "check_keys"]
__all__ += ["dump_toml", "flag", "format_value", "load_toml", "method_of", "unknown_name_message"]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'nearfar.config' has no attribute {name!r}")
    found = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found
