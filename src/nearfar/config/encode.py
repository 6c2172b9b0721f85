"""Settings of ``nearfar encode``. The class docstring is its summary in ``--help``, the text below a field its help."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from glob import has_magic
from typing import Literal

from nearfar.config.bounds import Count, File, Output, ProcessCount, RowCount, Shard, Width, shard_numbers
from nearfar.config.encoder import ComputeOptions, EncoderOptions
from nearfar.config.values import flag

DEFAULT_SHARD_ROWS = 1_000_000
"""Number of rows of a part if ``--shard-rows`` is not given."""
_OF_SHARDS = ("keep", "engine", "workers", "threads", "ray_address", "shard")
"""Settings that are for output in parts."""


@dataclass(frozen=True, kw_only=True)
class EncodeConfig(EncoderOptions, ComputeOptions):
    """Encode a file of texts into a file of embeddings, one row per text.

    Memory use does not grow with the number of texts. An interrupted run can be resumed. With --shard-rows, with a
    pattern such as 'FOLDER/*.parquet' as --input, or with an address such as s3://, OUTPUT is a folder of parts, which
    many workers write.
    """

    input: File
    """Text file with one text per line, optionally gzipped; or a .tsv, .csv, .jsonl or .parquet file with --column. For
    output in parts: a .parquet file, a quoted pattern such as 'FOLDER/*.parquet', or an fsspec address of either
    (s3://, gs://)."""
    output: Output
    """File to write: .npy, or .parquet with the columns row and embedding. For output in parts: a folder, or its fsspec
    address, for part-00000.parquet, ... with the columns row and vector."""
    processes: ProcessCount = 1
    """Number of processes. They share the processor cores of this machine, or use one GPU each."""
    resume: bool = False
    """Resume an interrupted run: write the parts that are missing or whose checksum is wrong, in OUTPUT.partial or in a
    folder OUTPUT."""
    overwrite: bool = False
    """Replace OUTPUT if it exists; of a folder, what a run of nearfar encode wrote there."""

    # --- Texts and vectors ---

    column: str | None = None
    """Column with the texts."""
    normalize: bool = False
    """Scale each embedding to unit length."""
    dimensions: Width | None = None
    """Keep the first DIMENSIONS of each embedding, best of a model that was trained with --matryoshka. Embeddings of
    unit length get unit length again. By default all."""
    dtype: Literal["float32", "float16"] = "float32"
    """Data type of the embeddings in OUTPUT."""
    quantize: Literal["float16", "int8", "binary"] | None = None
    """Write smaller embeddings. int8: one byte for each dimension, with the ranges of the dimensions in
    OUTPUT.ranges.npy (without the suffix of OUTPUT); binary: one bit, the sign; float16: as --dtype float16."""
    calibrate: File | None = None
    """Ranges of int8: a .npy file of embeddings, or the .ranges.npy file of an earlier run, whose codes are then
    comparable with the new ones. By default the ranges of the embeddings themselves."""
    with_texts: bool = False
    """Add the texts to the .parquet file, as the column text."""
    device: str | None = None
    """Device: cpu, cuda, cuda:1 ...; by default CUDA if available. Workers on Ray reserve a GPU each if it is cuda."""

    # --- Output in parts ---

    shard_rows: RowCount | None = None
    """Write a folder of parts with this number of rows each; 1,000,000 where parts are written for another reason. Each
    part is one job, which a worker does, or does again, as a whole."""
    keep: tuple[str, ...] = ()
    """Columns of the input to copy into the parts."""
    engine: Literal["local", "ray"] = "local"
    """Where parts are written: by workers on this machine, or on a Ray cluster (needs nearfar[scale])."""
    workers: Count = 1
    """Number of workers. Each keeps an encoder in memory."""
    threads: Count | None = None
    """Threads of each worker; by default the cores of this machine divided by WORKERS, and 1 with --ray-address."""
    ray_address: str | None = None
    """Address of the Ray cluster; by default a Ray is started on this machine."""
    shard: Shard | None = None
    """Write one share of the parts, as in 17/1000: the 17th of 1,000 processes with the same OUTPUT, such as those of a
    Slurm array. Implies --resume."""

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.quantize is not None and self.dtype != "float32":
            yield f"--dtype {self.dtype} and --quantize {self.quantize}: each sets the data type; give one."
        if self.calibrate is not None and self.quantize != "int8":
            yield f"--calibrate {self.calibrate}: is for int8 embeddings; give --quantize int8 with it."
        if not self.sharded:
            defaults = {field.name: field.default for field in fields(self)}
            given = [name for name in _OF_SHARDS if getattr(self, name) != defaults[name]]
            yield from (f"{flag(name)}: is for output in parts; give --shard-rows with it." for name in given)
            return
        if self.column is None:
            yield f"--input {self.input}: is read as Parquet; name the column of the texts with --column."
        if self.ray_address is not None and self.engine != "ray":
            yield "--ray-address is for --engine ray, not local."
        if self.processes > 1:
            yield f"--processes {self.processes}: is for output in one file; give --workers in its place."
        if self.with_texts:
            yield f"--with-texts: is for output in one file; give --keep {self.column} in its place."
        if self.quantize == "int8" and self.calibrate is None:
            yield (
                "--quantize int8: parts are written independently, so the ranges must be known before; give "
                "--calibrate."
            )
        if self.overwrite and self.shard is not None:
            yield "--overwrite and --shard: processes would remove each other's parts; leave one out."
        if twice := sorted({name for name in self.keep if self.keep.count(name) > 1}):
            yield f"--keep {twice[0]}: is given twice; give it once."
        if taken := [name for name in self.keep if name in ("row", "vector")]:
            yield f"--keep {taken[0]}: the parts have a column {taken[0]} of their own; rename the column."
        in_memory = [place for place in (self.input, self.output) if place.startswith("memory://")]
        if in_memory and (self.engine == "ray" or self.workers > 1 or self.threads):
            yield f"{in_memory[0]}: only this process sees it; leave out --engine, --workers and --threads."

    @property
    def sharded(self) -> bool:
        """Whether the output is a folder of parts."""
        if self.shard_rows is not None or "://" in self.input or "://" in self.output:
            return True
        return has_magic(self.input) and not os.path.lexists(self.input)

    @property
    def shard_numbers(self) -> tuple[int, int]:
        """``17/1000`` as (17, 1000); (1, 1) without ``--shard``."""
        return shard_numbers(self.shard)
