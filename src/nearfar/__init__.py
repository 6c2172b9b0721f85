"""nearfar fine-tunes sentence encoders by contrastive learning and proves that they got better.

>>> from nearfar import Encoder, SclConfig, compare, evaluate, train

Each name is imported when it is first used: ``import nearfar`` costs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.commands.back_translate.command import back_translate
    from nearfar.commands.compare import compare
    from nearfar.commands.encode.command import encode_file
    from nearfar.commands.evaluate import evaluate
    from nearfar.commands.finetune.command import finetune
    from nearfar.commands.geometry.command import geometry
    from nearfar.commands.predict import predict_file
    from nearfar.commands.report.command import report
    from nearfar.commands.train.command import train
    from nearfar.config import (
        AugmentConfig,
        BackTranslateConfig,
        BtConfig,
        BtSgOptConfig,
        CompareConfig,
        EncodeConfig,
        EvaluateConfig,
        FinetuneConfig,
        FinetuneStudyConfig,
        GeometryConfig,
        InfoNceConfig,
        PredictConfig,
        RegressionConfig,
        ReportConfig,
        SbertConfig,
        SclConfig,
        SgConfig,
        SgOpt1Config,
        SgOpt2Config,
        SgOptConfig,
        SimcseSupConfig,
        SimcseUnsupConfig,
        SupconTextConfig,
        TrainConfig,
    )
    from nearfar.encoder.classifier import Classifier
    from nearfar.encoder.encoder import Encoder

__version__ = "0.2.0.dev0"

_MODULES = {
    "Classifier": "encoder.classifier",
    "Encoder": "encoder.encoder",
    "back_translate": "commands.back_translate.command",
    "compare": "commands.compare",
    "encode_file": "commands.encode.command",
    "evaluate": "commands.evaluate",
    "finetune": "commands.finetune.command",
    "geometry": "commands.geometry.command",
    "predict_file": "commands.predict",
    "report": "commands.report.command",
    "train": "commands.train.command",
}

__all__ = [
    "AugmentConfig",
    "BackTranslateConfig",
    "BtConfig",
    "BtSgOptConfig",
    "Classifier",
    "CompareConfig",
    "EncodeConfig",
    "Encoder",
    "EvaluateConfig",
    "FinetuneConfig",
    "FinetuneStudyConfig",
    "GeometryConfig",
    "InfoNceConfig",
    "NearfarError",
    "PredictConfig",
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
    "back_translate",
    "compare",
    "encode_file",
    "evaluate",
    "finetune",
    "geometry",
    "predict_file",
    "report",
    "train",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'nearfar' has no attribute {name!r}")
    found = getattr(import_module(f"nearfar.{_MODULES.get(name, 'config')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
