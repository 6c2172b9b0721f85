"""A file of texts -> a file of vectors: what ``nearfar encode`` calls."""

import os
from pathlib import Path

from nearfar.types import NearfarError


def encode_file(
    model: str,
    source: str | Path,
    output: str | Path,
    *,
    column: str | None = None,
    normalize: bool = False,
    pooling: str | None = None,
    max_length: int | None = None,
    device: str | None = None,
    progress: bool = True,
) -> tuple[int, int]:
    """Write the embeddings of the texts of ``source`` as a float32 .npy file [texts, dim]; the shape is returned.

    ``source`` is a text file with one text a line, or, with ``column``, any table that
    :mod:`nearfar.data.sources` reads. Row i of the output belongs to line or row i. The file is written whole or not
    at all.

    Raises:
        NearfarError: no such file or column, no texts, an output that is no .npy or cannot be written, or what
            :meth:`nearfar.Encoder.from_pretrained` refuses.
    """
    place = Path(output)
    if place.suffix != ".npy":
        raise NearfarError(f"--output {output}: must end in .npy.")
    texts = _lines(Path(source)) if column is None else _column(source, column)
    if not any(texts):
        raise NearfarError(f"{source}: holds no texts.")

    import numpy as np

    from nearfar.disk import disk_errors, flush
    from nearfar.encoder.encoder import Encoder

    encoder = Encoder.from_pretrained(model, pooling=pooling, max_length=max_length, device=device)
    vectors = encoder.encode(texts, normalize=normalize, progress=progress)
    with disk_errors(place):
        fresh = place.with_name(place.name + ".new")
        with fresh.open("wb") as stream:
            np.save(stream, vectors)
        flush(fresh)
        os.replace(fresh, place)
    return vectors.shape[0], vectors.shape[1]


def _lines(source: Path) -> list[str]:
    try:
        return source.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise NearfarError(f"{source}: cannot be read as UTF-8 text: {error}") from error


def _column(source: str | Path, column: str) -> list[str]:
    from nearfar.data.sources import read_columns, text_field

    return [text_field(value, column, where) for where, (value,) in read_columns(source, (column,))]
