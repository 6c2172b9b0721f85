"""nearfar fine-tunes sentence encoders by contrastive learning and tests whether they got better.

>>> from nearfar import Encoder, SclConfig, compare, evaluate, train

Every name is imported on first use, so ``import nearfar`` does not import torch or NumPy.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.runtime.versions import __version__ as __version__
from nearfar.types import NearfarError as NearfarError

if TYPE_CHECKING:  # type checkers read these imports, as `_modules` does
    from nearfar.commands.back_translate import back_translate as back_translate
    from nearfar.commands.compare import compare as compare
    from nearfar.commands.dedup import dedup as dedup
    from nearfar.commands.demo import demo as demo
    from nearfar.commands.encode import encode as encode
    from nearfar.commands.env import env as env
    from nearfar.commands.evaluate import evaluate as evaluate
    from nearfar.commands.export import export as export
    from nearfar.commands.finetune import finetune as finetune
    from nearfar.commands.geometry import geometry as geometry
    from nearfar.commands.get_data import get_data as get_data
    from nearfar.commands.mine import mine as mine
    from nearfar.commands.predict import predict as predict
    from nearfar.commands.push import push as push
    from nearfar.commands.report import report as report
    from nearfar.commands.search import search as search
    from nearfar.commands.soup import soup as soup
    from nearfar.commands.static import static as static
    from nearfar.commands.threshold import threshold as threshold
    from nearfar.commands.train import adapt as adapt
    from nearfar.commands.train import train as train
    from nearfar.config.encoding import DedupConfig as DedupConfig
    from nearfar.config.encoding import EncodeConfig as EncodeConfig
    from nearfar.config.encoding import GeometryConfig as GeometryConfig
    from nearfar.config.encoding import MineConfig as MineConfig
    from nearfar.config.encoding import SearchConfig as SearchConfig
    from nearfar.config.encoding import ThresholdConfig as ThresholdConfig
    from nearfar.config.training import FinetuneConfig as FinetuneConfig
    from nearfar.config.training import TrainConfig as TrainConfig
    from nearfar.config.verbs import BackTranslateConfig as BackTranslateConfig
    from nearfar.config.verbs import CompareConfig as CompareConfig
    from nearfar.config.verbs import DemoConfig as DemoConfig
    from nearfar.config.verbs import EnvConfig as EnvConfig
    from nearfar.config.verbs import EvaluateConfig as EvaluateConfig
    from nearfar.config.verbs import ExportConfig as ExportConfig
    from nearfar.config.verbs import GetDataConfig as GetDataConfig
    from nearfar.config.verbs import PredictConfig as PredictConfig
    from nearfar.config.verbs import PushConfig as PushConfig
    from nearfar.config.verbs import ReportConfig as ReportConfig
    from nearfar.config.verbs import ReproduceConfig as ReproduceConfig
    from nearfar.config.verbs import SoupConfig as SoupConfig
    from nearfar.config.verbs import StaticConfig as StaticConfig
    from nearfar.config.verbs import StudyConfig as StudyConfig
    from nearfar.encoder.classifier import Classifier as Classifier
    from nearfar.encoder.encoder import Encoder as Encoder
    from nearfar.evaluation.results import ComparisonResult as ComparisonResult
    from nearfar.evaluation.results import EvaluationResult as EvaluationResult
    from nearfar.evaluation.results import PairwiseResult as PairwiseResult
    from nearfar.evaluation.results import load_result as load_result
    from nearfar.methods.distill import DistillConfig as DistillConfig
    from nearfar.methods.gunel import SupconTextConfig as SupconTextConfig
    from nearfar.methods.kim import BtConfig as BtConfig
    from nearfar.methods.kim import BtSgOptConfig as BtSgOptConfig
    from nearfar.methods.kim import SgConfig as SgConfig
    from nearfar.methods.kim import SgOpt1Config as SgOpt1Config
    from nearfar.methods.kim import SgOpt2Config as SgOpt2Config
    from nearfar.methods.kim import SgOptConfig as SgOptConfig
    from nearfar.methods.liao import AugmentConfig as AugmentConfig
    from nearfar.methods.liao import SbertConfig as SbertConfig
    from nearfar.methods.liao import SclConfig as SclConfig
    from nearfar.methods.nli_order import NliOrderConfig as NliOrderConfig
    from nearfar.methods.regression import RegressionConfig as RegressionConfig
    from nearfar.methods.simcse import DocumentsConfig as DocumentsConfig
    from nearfar.methods.simcse import InfoNceConfig as InfoNceConfig
    from nearfar.methods.simcse import SimcseSupConfig as SimcseSupConfig
    from nearfar.methods.simcse import SimcseUnsupConfig as SimcseUnsupConfig
    from nearfar.methods.teacher_scores import TeacherScoresConfig as TeacherScoresConfig
    from nearfar.registry import register_method as register_method
    from nearfar.studies import study as study
    from nearfar.studies.papers import reproduce as reproduce
    from nearfar.studies.tune import tune as tune


def _modules() -> dict[str, str]:
    """Public name -> the module that defines it, as the imports at the top of this file say it."""
    nodes = ast.walk(ast.parse(Path(__file__).read_text("utf-8")))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    modules = {alias.name: node.module or "" for node in imports for alias in node.names if alias.asname}
    del modules["__version__"]
    tables = "nearfar.evaluation.tables"  # makes results show their tables in notebooks
    return {name: tables if module == "nearfar.evaluation.results" else module for name, module in modules.items()}


_MODULES = _modules()
globals()["__all__"] = list(_MODULES)  # of a plain assignment type checkers would see no names


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'nearfar' has no attribute {name!r}")
    found = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(_MODULES)
