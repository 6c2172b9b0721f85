"""Settings of ``nearfar encode``. The class docstring is its summary in ``--help``, the text below a field its help."""

from dataclasses import dataclass
from typing import Literal

from nearfar.config.bounds import File, Length, Output, ProcessCount, Prompt, Width
from nearfar.config.values import Settings
from nearfar.types import NearfarError, Precision


@dataclass(frozen=True, kw_only=True)
class EncodeConfig(Settings):
    """Encode a file of texts into a file of embeddings, one row per text.

    Memory use does not grow with the number of texts. An interrupted run can be resumed.
    """

    input: File
    """Text file with one text per line, optionally gzipped; or a .tsv, .csv, .jsonl or .parquet file with --column."""
    output: Output
    """File to write: .npy, or .parquet with the columns row and embedding."""
    column: str | None = None
    """Column with the texts."""
    normalize: bool = False
    """Scale each embedding to unit length."""
    pooling: str | None = None
    """Override the model's pooling: cls, mean, mean_without_cls, max, first_last, embeddings_last, last_two, layer:K or
    layer:K:max."""
    prompt: Prompt | None = None
    """Text before each text, as in "query: ", or the name of one of the model's prompts; '' for no prompt. By default
    the model's own."""
    max_length: Length | None = None
    """Maximum number of tokens in a text; longer texts are truncated. By default the model's own limit."""
    precision: Precision = "auto"
    """Precision of the computation. auto is bf16 (bfloat16) if the device supports it natively, else fp32."""
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
    processes: ProcessCount = 1
    """Number of processes. They share the processor cores of this machine, or use one GPU each."""
    resume: bool = False
    """Resume an interrupted run from OUTPUT.partial."""
    overwrite: bool = False
    """Replace OUTPUT if it exists."""
    device: str | None = None
    """Device: cpu, cuda, cuda:1 ...; by default CUDA if available."""

    def __post_init__(self) -> None:
        """Check the values, and their combinations."""
        super().__post_init__()
        if self.quantize is not None and self.dtype != "float32":
            raise NearfarError(
                f"--dtype {self.dtype} and --quantize {self.quantize}: each sets the data type; give one."
            )
        if self.calibrate is not None and self.quantize != "int8":
            raise NearfarError(f"--calibrate {self.calibrate}: is for int8 embeddings; give --quantize int8 with it.")
