"""Every setting of every command, once: these frozen dataclasses are the flags, the TOML keys and the Python API.

A run is ``TrainConfig`` plus what its method adds; each method is one class, and its defaults are the paper's. The text
below a field is its ``--help``.
"""

from nearfar.config.files import FINETUNE, FINETUNE_STUDY, build, check_keys, dump_toml, load_toml, method_of, nearest
from nearfar.config.finetune import FinetuneConfig, FinetuneStudyConfig, listed
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
)
from nearfar.config.training import RunConfig, TrainConfig, flag
from nearfar.config.verbs import (
    STS_TASKS,
    TRANSFER_TASKS,
    BackTranslateConfig,
    CompareConfig,
    EncodeConfig,
    EnvConfig,
    EvaluateConfig,
    GeometryConfig,
    PredictConfig,
    ReportConfig,
)

__all__ = [
    "FINETUNE",
    "FINETUNE_STUDY",
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
    "EnvConfig",
    "EvaluateConfig",
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
    "listed",
    "load_toml",
    "method_of",
    "nearest",
]
