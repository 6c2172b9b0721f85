"""Settings of ``nearfar study`` and ``nearfar reproduce``: where a study runs, and which of its cells."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from nearfar.config.bounds import Count, File, Output, ProcessCount, Resamples, Seed, Shard, shard_numbers
from nearfar.config.values import Settings
from nearfar.types import NearfarError


@dataclass(frozen=True, kw_only=True)
class StudyConfig(Settings):
    """Run a study, that is, all cells of a table described by a TOML file, and write the table with tests and plots.

    A study that was stopped goes on with the same command. Cells that are finished are not run again.
    """

    output: Output
    """Folder to write: study.json, page.md, table.csv, table.tex and plots."""
    scale: str | None = None
    """Scale of the study, one of the tables [scales.NAME] of the file; by default the file itself."""
    start: File | None = None
    """Model that replaces {start} in the file: a folder, or owner/name on the Hugging Face Hub."""
    cells: Output | None = None
    """Folder of the finished cells; studies with the same folder share them. Default: OUTPUT/cells."""
    only: tuple[str, ...] = ()
    """Run only these rows, by their ids; the table has the finished cells of all rows."""

    # --- Workers ---

    workers: ProcessCount = 1
    """Number of worker processes on this machine."""
    threads: Count | None = None
    """Threads of each worker; by default the cores of this machine divided by WORKERS."""
    engine: Literal["process", "inline", "ray"] = "process"
    """Where cells run: in worker processes, in this process, or as tasks on a Ray cluster (needs nearfar[scale])."""
    ray_address: str | None = None
    """Address of the Ray cluster; by default a Ray is started on this machine."""
    shard: Shard | None = None
    """Run one part of the cells, as in 3/40: the third of 40. All parts need the same --cells."""
    discard_models: bool = False
    """Remove the model of each training when all cells that need it are finished."""

    # --- Statistics ---

    resamples: Resamples = 10_000
    """Number of bootstrap resamples of intervals and tests."""
    seed: Seed = 0
    """Seed of the bootstrap."""

    def __post_init__(self) -> None:
        """Check values, and those that exclude each other."""
        super().__post_init__()
        if self.ray_address is not None and self.engine != "ray":
            raise NearfarError(f"--ray-address is for --engine ray, not {self.engine}.")
        if self.engine == "inline" and self.workers > 1:
            raise NearfarError("--engine inline runs one cell at a time; leave --workers out, or use --engine process.")

    @property
    def shard_numbers(self) -> tuple[int, int]:
        """``3/40`` as (3, 40); (1, 1) without shards."""
        return shard_numbers(self.shard)


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
