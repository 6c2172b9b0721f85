"""Every setting of every command, once: these frozen dataclasses are the flags, the TOML keys and the Python API.

A run is ``TrainConfig`` plus what its method adds; each method is one class, and its defaults are the paper's. The text
below a field is its ``--help``.
"""

from nearfar.config.files import build, check_keys, dump_toml, load_toml, nearest
from nearfar.config.methods import (
    METHODS,
    AugmentConfig,
    BtConfig,
    BtSgOptConfig,
    Cap,
    InfoNceConfig,
    RegressionConfig,
    SbertConfig,
    SclConfig,
    SgConfig,
    SgOpt1Config,
    SgOpt2Config,
    SgOptConfig,
    SimcseSupConfig,
    SimcseUnsupConfig,
    SupconTextConfig,
    method_of,
)
from nearfar.config.training import TrainConfig, flag
from nearfar.config.verbs import (
    STS_TASKS,
    TRANSFER_TASKS,
    BackTranslateConfig,
    CompareConfig,
    EncodeConfig,
    EvaluateConfig,
    GeometryConfig,
    ReportConfig,
)

__all__ = [
    "METHODS",
    "STS_TASKS",
    "TRANSFER_TASKS",
    "AugmentConfig",
    "BackTranslateConfig",
    "BtConfig",
    "BtSgOptConfig",
    "Cap",
    "CompareConfig",
    "EncodeConfig",
    "EvaluateConfig",
    "GeometryConfig",
    "InfoNceConfig",
    "RegressionConfig",
    "ReportConfig",
    "SbertConfig",
    "SclConfig",
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
    "load_toml",
    "method_of",
    "nearest",
]
