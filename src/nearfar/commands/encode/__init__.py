"""``nearfar encode``: texts -> embeddings, in parts that a later call continues; one file is the join of its parts.

A folder of parts is written by jobs, in this process, in workers or on Ray. One file is the join of its parts, which
are encoded in one or several processes.
"""

from pathlib import Path

from nearfar.commands.encode.file import encode_file
from nearfar.commands.encode.folder import encode_folder
from nearfar.commands.encode.run import EncodeResult, load_encoder
from nearfar.config.calls import accepts_settings
from nearfar.config.encoding import EncodeConfig
from nearfar.data.memory import takes_rows
from nearfar.data.paths import as_path
from nearfar.disk.checks import path_errors
from nearfar.encoder.precision import check_computing

BLOCK = 2**14
"""Number of texts in a block. A block is sorted by length and deduplicated as a whole. Of one file, it is a part."""


@takes_rows
@accepts_settings(EncodeConfig)
@path_errors()
def encode(model: str | Path, config: EncodeConfig, *, block: int = BLOCK, progress: bool = True) -> tuple[int, int]:
    """Write the embeddings of the texts in ``config.input`` to ``config.output``; returns their shape (texts, dim).

    Settings can be given by name: ``encode("model", input="texts.txt", output="texts.npy")``; see
    :class:`nearfar.EncodeConfig`. Row i of the output belongs to text i, counted from 0. The embeddings are those of
    :meth:`nearfar.Encoder.encode`. A .npy file holds one array [texts, dim]. A .parquet file has the columns ``row``
    and ``embedding`` (a list of fixed size).

    ``dimensions`` keeps the first dimensions, ``quantize`` writes the codes of :mod:`nearfar.quantization` in place of
    float32 embeddings. The ranges of int8 codes are in ``OUTPUT.ranges.npy`` (without the suffix of ``OUTPUT``),
    float32 [2, dim]; where they are those of the embeddings themselves, the parts hold float32 embeddings.

    Texts are read twice: first to count, check and fingerprint them, then block by block. At most a few blocks are in
    memory. Embeddings are kept as parts in ``OUTPUT.partial`` until all are done; then they are joined, and the output
    appears at once. An interrupted run continues with ``resume`` after the last finished part, and ends with the same
    bytes as an uninterrupted run (same machine, same number of threads). A resumed run with precision ``auto`` keeps
    the precision that it started with.

    If :attr:`nearfar.EncodeConfig.sharded` is set, the output is the folder of parts itself: ``part-00000.parquet`` and
    so on, with the columns ``row``, ``vector`` and those of ``keep``; ``_manifest.json``, when all of them are
    finished; and ``_nearfar``. Part k has the rows k * ``shard_rows`` to (k + 1) * ``shard_rows`` of the files in the
    order of their names. The shape is then that of the parts of this call: all, or those of ``shard``.

    Args:
        model: a model folder, the folder of a finished training run, or ``owner/name`` on the Hugging Face Hub.
        config: the settings.
        block: number of texts in a block.
        progress: show a progress bar.

    Raises:
        NearfarError: the input or its column is missing, empty or not text; the output has another suffix, exists, is
            the input, cannot be written or does not fit on the disk; an interrupted run exists and ``resume`` is not
            set, or it has other texts or settings; a process died; or :meth:`nearfar.Encoder.from_pretrained` refuses
            the model.
    """
    result = encode_parts(model, config, block=block, progress=progress)
    return result.rows, result.dim


@path_errors()
def encode_parts(model: str | Path, config: EncodeConfig, *, block: int = BLOCK, progress: bool = True) -> EncodeResult:
    """:func:`encode`, which returns what was written.

    Raises:
        NearfarError: see :func:`encode`.
    """
    check_computing(config.device if config.engine == "local" else "cpu", config.precision)
    folder = as_path(model)
    name = str(folder.absolute() if folder.is_dir() else model)  # jobs and workers have other working directories
    try:
        return (encode_folder if config.sharded else encode_file)(name, config, block, progress=progress)
    finally:
        load_encoder.cache_clear()  # frees it
