"""nearfar fine-tunes sentence encoders by contrastive learning and tests whether they got better.

>>> from nearfar import Encoder, SclConfig, compare, evaluate, train

Every name is imported on first use, so ``import nearfar`` does not import torch or NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from nearfar.runtime.versions import __version__ as __version__
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.commands.back_translate.command import back_translate
    from nearfar.commands.compare import compare
    from nearfar.commands.dedup import dedup
    from nearfar.commands.demo import demo
    from nearfar.commands.encode.command import encode
    from nearfar.commands.env import env
    from nearfar.commands.evaluate.command import evaluate
    from nearfar.commands.export.command import export
    from nearfar.commands.finetune.command import finetune
    from nearfar.commands.geometry.command import geometry
    from nearfar.commands.get_data.command import get_data
    from nearfar.commands.mine.command import mine
    from nearfar.commands.predict import predict
    from nearfar.commands.push import push
    from nearfar.commands.report import report
    from nearfar.commands.search.command import search
    from nearfar.commands.soup import soup
    from nearfar.commands.static import static
    from nearfar.commands.train.command import train
    from nearfar.config import (
        AugmentConfig,
        BackTranslateConfig,
        BtConfig,
        BtSgOptConfig,
        CompareConfig,
        DedupConfig,
        DemoConfig,
        DistillConfig,
        EncodeConfig,
        EnvConfig,
        EvaluateConfig,
        ExportConfig,
        FinetuneConfig,
        GeometryConfig,
        GetDataConfig,
        InfoNceConfig,
        MineConfig,
        NliOrderConfig,
        PredictConfig,
        PushConfig,
        RegressionConfig,
        ReportConfig,
        ReproduceConfig,
        SbertConfig,
        SclConfig,
        SearchConfig,
        SgConfig,
        SgOpt1Config,
        SgOpt2Config,
        SgOptConfig,
        SimcseSupConfig,
        SimcseUnsupConfig,
        SoupConfig,
        StaticConfig,
        StudyConfig,
        SupconTextConfig,
        TrainConfig,
    )
    from nearfar.encoder.classifier import Classifier
    from nearfar.encoder.encoder import Encoder
    from nearfar.evaluation.results import ComparisonResult, EvaluationResult, PairwiseResult, load_result
    from nearfar.registry import register_method
    from nearfar.studies.papers import reproduce
    from nearfar.studies.run import study

_MODULES = {
    "Classifier": "encoder.classifier",
    "ComparisonResult": "evaluation.tables.pages",
    "Encoder": "encoder.encoder",
    "EvaluationResult": "evaluation.tables.pages",
    "PairwiseResult": "evaluation.tables.pages",
    "back_translate": "commands.back_translate.command",
    "compare": "commands.compare",
    "dedup": "commands.dedup",
    "demo": "commands.demo",
    "encode": "commands.encode.command",
    "env": "commands.env",
    "evaluate": "commands.evaluate.command",
    "export": "commands.export.command",
    "finetune": "commands.finetune.command",
    "geometry": "commands.geometry.command",
    "get_data": "commands.get_data.command",
    "load_result": "evaluation.tables.pages",
    "mine": "commands.mine.command",
    "predict": "commands.predict",
    "push": "commands.push",
    "register_method": "registry",
    "report": "commands.report",
    "reproduce": "studies.papers",
    "search": "commands.search.command",
    "soup": "commands.soup",
    "static": "commands.static",
    "study": "studies.run",
    "train": "commands.train.command",
}
"""Name -> its module in nearfar; all other names are in nearfar.config."""

__all__ = ["Classifier", "ComparisonResult", "Encoder", "EvaluationResult", "NearfarError", "PairwiseResult"]
__all__ += ["back_translate", "compare", "dedup", "demo", "encode", "env", "evaluate", "export", "finetune", "geometry"]
__all__ += ["get_data", "load_result", "mine", "predict", "push", "register_method", "report", "reproduce", "search"]
__all__ += ["soup", "static", "study", "train"]
__all__ += ["BackTranslateConfig", "CompareConfig", "DedupConfig", "DemoConfig", "EncodeConfig", "EnvConfig"]
__all__ += ["EvaluateConfig", "ExportConfig", "FinetuneConfig", "GeometryConfig", "GetDataConfig", "MineConfig"]
__all__ += ["PredictConfig", "PushConfig", "ReportConfig", "ReproduceConfig", "SearchConfig", "SoupConfig"]
__all__ += ["StaticConfig", "StudyConfig", "TrainConfig"]
__all__ += ["AugmentConfig", "BtConfig", "BtSgOptConfig", "DistillConfig", "InfoNceConfig", "NliOrderConfig"]
__all__ += ["RegressionConfig", "SbertConfig", "SclConfig", "SgConfig", "SgOpt1Config", "SgOpt2Config", "SgOptConfig"]
__all__ += ["SimcseSupConfig", "SimcseUnsupConfig", "SupconTextConfig"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'nearfar' has no attribute {name!r}")
    found = getattr(import_module(f"nearfar.{_MODULES.get(name, 'config')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
