"""Study files: a table of rows, axes and replicates as TOML -> :class:`Study` -> the cells with their settings."""

from nearfar.config.study.load import load_study
from nearfar.config.study.plan import PlannedCell, PlannedStep, plan_cells
from nearfar.config.study.types import Axis, Best, PaperNumber, Plot, Row, SpeedConfig, Step, Study

__all__ = [
    "Axis",
    "Best",
    "PaperNumber",
    "PlannedCell",
    "PlannedStep",
    "Plot",
    "Row",
    "SpeedConfig",
    "Step",
    "Study",
    "load_study",
    "plan_cells",
]
