"""nearfar fine-tunes sentence encoders by contrastive learning and tests whether they got better.

>>> from nearfar import Encoder, SclConfig, compare, evaluate, train

Every name is imported on first use, so ``import nearfar`` does not import torch or NumPy.
"""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.runtime.versions import __version__ as __version__
from nearfar.types import NearfarError

if TYPE_CHECKING:  # type checkers read these imports, and :func:`_modules` does
    from nearfar.commands.back_translate import back_translate
    from nearfar.commands.compare import compare
    from nearfar.commands.dedup import dedup
    from nearfar.commands.demo import demo
    from nearfar.commands.encode import encode
    from nearfar.commands.env import env
    from nearfar.commands.evaluate import evaluate
    from nearfar.commands.export import export
    from nearfar.commands.finetune import finetune
    from nearfar.commands.geometry import geometry
    from nearfar.commands.get_data import get_data
    from nearfar.commands.mine import mine
    from nearfar.commands.predict import predict
    from nearfar.commands.push import push
    from nearfar.commands.report import report
    from nearfar.commands.search import search
    from nearfar.commands.soup import soup
    from nearfar.commands.static import static
    from nearfar.commands.train import adapt, train
    from nearfar.config.encoding import DedupConfig, EncodeConfig, GeometryConfig, MineConfig, SearchConfig
    from nearfar.config.training import FinetuneConfig, TrainConfig
    from nearfar.config.verbs import (
        BackTranslateConfig,
        CompareConfig,
        DemoConfig,
        EnvConfig,
        EvaluateConfig,
        ExportConfig,
        GetDataConfig,
        PredictConfig,
        PushConfig,
        ReportConfig,
        ReproduceConfig,
        SoupConfig,
        StaticConfig,
        StudyConfig,
    )
    from nearfar.encoder.classifier import Classifier
    from nearfar.encoder.encoder import Encoder
    from nearfar.evaluation.results import ComparisonResult, EvaluationResult, PairwiseResult, load_result
    from nearfar.methods.distill import DistillConfig
    from nearfar.methods.gunel import SupconTextConfig
    from nearfar.methods.kim import BtConfig, BtSgOptConfig, SgConfig, SgOpt1Config, SgOpt2Config, SgOptConfig
    from nearfar.methods.liao import AugmentConfig, SbertConfig, SclConfig
    from nearfar.methods.nli_order import NliOrderConfig
    from nearfar.methods.regression import RegressionConfig
    from nearfar.methods.simcse import DocumentsConfig, InfoNceConfig, SimcseSupConfig, SimcseUnsupConfig
    from nearfar.registry import register_method
    from nearfar.studies import study
    from nearfar.studies.papers import reproduce

__all__ = ["Classifier", "ComparisonResult", "Encoder", "EvaluationResult", "NearfarError", "PairwiseResult"]
__all__ += [
    "adapt",
    "back_translate",
    "compare",
    "dedup",
    "demo",
    "encode",
    "env",
    "evaluate",
    "export",
    "finetune",
    "geometry",
]
__all__ += ["get_data", "load_result", "mine", "predict", "push", "register_method", "report", "reproduce", "search"]
__all__ += ["soup", "static", "study", "train"]
__all__ += ["BackTranslateConfig", "CompareConfig", "DedupConfig", "DemoConfig", "EncodeConfig", "EnvConfig"]
__all__ += ["EvaluateConfig", "ExportConfig", "FinetuneConfig", "GeometryConfig", "GetDataConfig", "MineConfig"]
__all__ += ["PredictConfig", "PushConfig", "ReportConfig", "ReproduceConfig", "SearchConfig", "SoupConfig"]
__all__ += ["StaticConfig", "StudyConfig", "TrainConfig"]
__all__ += ["AugmentConfig", "BtConfig", "BtSgOptConfig", "DistillConfig", "DocumentsConfig", "InfoNceConfig"]
__all__ += [
    "NliOrderConfig",
    "RegressionConfig",
    "SbertConfig",
    "SclConfig",
    "SgConfig",
    "SgOpt1Config",
    "SgOpt2Config",
    "SgOptConfig",
]
__all__ += ["SimcseSupConfig", "SimcseUnsupConfig", "SupconTextConfig"]


@cache
def _modules() -> dict[str, str]:
    """Public name -> the module that defines it, as the imports at the top of this file say it."""
    imports = (
        node for node in ast.walk(ast.parse(Path(__file__).read_text("utf-8"))) if isinstance(node, ast.ImportFrom)
    )
    modules = {alias.name: node.module or "" for node in imports for alias in node.names}
    results = "nearfar.evaluation.tables"  # makes results show their tables in notebooks
    return {name: results if modules[name] == "nearfar.evaluation.results" else modules[name] for name in __all__}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'nearfar' has no attribute {name!r}")
    found = getattr(import_module(_modules()[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
