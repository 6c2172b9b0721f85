"""Settings of ``nearfar reproduce``."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from nearfar.config.bounds import File, Output
from nearfar.config.study.run import StudyConfig

Scale: TypeAlias = Literal["tiny", "here", "paper"]
SCALES: tuple[Scale, ...] = ("paper", "here", "tiny")
START = "sentence-transformers/all-MiniLM-L6-v2"
"""The encoder that the scale ``here`` starts from by default."""


@dataclass(frozen=True, kw_only=True)
class ReproduceConfig(StudyConfig):
    """Reproduce tables and figures of the papers; without a name, list them.

    Each is a study (see nearfar study). The table has the paper's numbers beside ours, and says what differs.
    """

    output: Output = "reproduced"
    """Folder to write: OUTPUT/NAME has study.json, page.md, table.csv, table.tex and plots of a table."""
    scale: Scale = "here"
    """paper: the models, data, settings and seeds of the paper. here: smaller, for two cores and the data folder, from
    START. tiny: generated data and a tiny encoder, in seconds, to try the command."""
    start: File | None = None
    """Model to start from at the scale here; by default all-MiniLM-L6-v2. At the scale tiny by default a generated
    encoder. The scale paper has the paper's models."""
    cells: Output | None = None
    """Folder of the finished cells; tables with the same folder share them. Default: OUTPUT/cells."""
