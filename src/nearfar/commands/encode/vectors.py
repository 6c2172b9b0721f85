"""The vectors of texts that a command works on, kept beside its output until that is complete: a second call has them.

``OUTPUT.vectors/KEY.npy`` holds the vectors of all texts, ``OUTPUT.vectors/KEY`` the finished parts while they are
computed. KEY is a hash of model, settings and texts, so vectors of other texts are never read.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from nearfar.commands.encode.corpus import InputFile
from nearfar.commands.encode.join import join_parts
from nearfar.commands.encode.parts import OnTexts, Piece, missing_blocks, pieces_of, store_stream
from nearfar.commands.encode.plan import Plan, finished_part, part_name, read_records, record_name, work_of
from nearfar.disk import check_regular, folder_lock, remove
from nearfar.disk.places import LocalFolder, Place
from nearfar.types import ARRAY_ERRORS

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder

PART_TEXTS = 2**11
"""Number of texts that are encoded and saved together."""


@contextmanager
def vectors_folder(output: str | Path | None, *, flag: str = "--output") -> Iterator[Path]:
    """The folder ``OUTPUT.vectors``, locked; without an output, a temporary folder. ``flag`` names another output.

    Raises:
        NearfarError: another process uses it, or it cannot be created.
    """
    if output is None:
        with TemporaryDirectory(prefix="nearfar-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)
        return
    with folder_lock(kept_vectors(output), what=output, remove_if_empty=True, flag=flag):
        yield kept_vectors(output)


def kept_vectors(output: str | Path) -> Path:
    """The folder of the vectors that an output is made of."""
    return Path(f"{output}.vectors")


def remove_vectors(folder: Path) -> None:
    """Remove all vectors in the folder of :func:`vectors_folder`, because the output is complete.

    Raises:
        NearfarError: a file cannot be removed.
    """
    for path in [*folder.glob("*.npy"), *(entry for entry in folder.iterdir() if entry.is_dir())]:
        remove(path)


def encode_texts(
    folder: Path,
    texts: Sequence[str],
    encoder: "Encoder",
    *,
    model: str,
    prompt: str,
    bf16: bool,
    normalize: bool = True,
    dimensions: int | None = None,
    on_texts: OnTexts = lambda _: None,
) -> Float32[np.ndarray, "texts dim"]:
    """The vectors of texts, memory-mapped; those that ``folder`` does not have are encoded first.

    Args:
        folder: the folder of :func:`vectors_folder`.
        texts: the texts, one or more.
        encoder: the encoder.
        model: the fingerprint of its model.
        prompt: text before each text.
        bf16: compute in bfloat16.
        normalize: scale the vectors to unit length.
        dimensions: keep the first dimensions.
        on_texts: called with numbers of texts that are done.

    Raises:
        NearfarError: a vector is not finite, or a file cannot be written.
    """
    from nearfar.encoder.stream import encode_blocks, tokenize_blocks
    from nearfar.encoder.token_batches import truncation_message

    settings = {
        "model": model,
        "pooling": encoder.pooling,
        "max_length": encoder.max_length,
        "prompt": prompt,
        "precision": "bf16" if bf16 else "fp32",
        "normalize": normalize,
    }
    plan = plan_of_texts(texts, dimensions or encoder.dim, settings)
    how: dict[str, Any] = {"normalize": normalize, "dimensions": dimensions, "bf16": bf16}

    def pieces(done: Mapping[int, Any]) -> Iterable[Piece]:
        tokens = tokenize_blocks(encoder, missing_blocks(iter(texts), plan, done), prompt=prompt)
        return pieces_of(encode_blocks(encoder, tokens, **how, on_batch=on_texts), on_texts)

    vectors, truncated = stored_vectors(folder / f"{plan.digest}.npy", plan, pieces, on_texts)
    if truncated:
        warnings.warn(truncation_message(truncated, len(texts), encoder.max_length), stacklevel=2)
    return vectors


def plan_of_texts(texts: Iterable[str], dim: int, settings: Mapping[str, Any]) -> Plan:
    """The plan of float32 vectors [texts, dim] of distinct texts; ``settings`` are all that determines them."""
    digest, count = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()), 0
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
        count += 1
    stored = {"quantize": None, "dtype": "float32", "shard_rows": PART_TEXTS, "block": PART_TEXTS}
    return Plan({**settings, **stored}, dim, (InputFile("", count, 0, digest.hexdigest()),))


def stored_vectors(
    file: Path,
    plan: Plan,
    pieces: Callable[[Mapping[int, Any]], Iterable[Piece]],
    on_texts: OnTexts = lambda _: None,
) -> tuple[Float32[np.ndarray, "texts dim"], int]:
    """The vectors of a plan of :func:`plan_of_texts`, memory-mapped from ``file``, and how many texts were truncated.

    Args:
        file: the .npy file; what it lacks is computed first. The parts are in a folder beside it meanwhile.
        plan: what the vectors are.
        pieces: computes the vectors of all parts but the finished ones, which it gets.
        on_texts: called with numbers of texts that were done before.

    Raises:
        NearfarError: a vector is not finite, or a file cannot be written.
    """
    vectors = read_vectors_file(file, (plan.rows, plan.dim))
    if vectors is not None:
        on_texts(plan.rows)
        return vectors, 0
    place = LocalFolder(str(file.with_suffix("")))
    done = finished_parts(place, plan)
    on_texts(sum(stop - start for start, stop in map(plan.row_range, done)))
    store_stream(place, plan, pieces(done), place.shared)
    join_parts(place, plan, file)
    truncated = sum(record.truncated for record in read_records(place, plan).values())
    remove(place.shared)
    vectors = read_vectors_file(file, (plan.rows, plan.dim))
    assert vectors is not None  # just written
    return vectors, truncated


def finished_parts(place: Place, plan: Plan) -> dict[int, Any]:
    """The records of the parts that are there and valid; what is left of others is removed."""
    recorded = set(work_of(place).recorded())
    done = {}
    for part in range(plan.parts):
        if record_name(part) in recorded and (record := finished_part(place, plan, part)):
            done[part] = record
        else:
            place.clean(part_name(part))
    return done


def read_vectors_file(file: Path, shape: tuple[int, int]) -> NDArray[np.float32] | None:
    """The finite float32 vectors of a .npy file, memory-mapped; None if there is no such file, or a damaged one."""
    with suppress(*ARRAY_ERRORS):
        check_regular(file)
        vectors: NDArray[np.float32] = np.load(file, mmap_mode="r", allow_pickle=False)
        if vectors.shape == shape and vectors.dtype == np.dtype("float32"):
            blocks = (vectors[start : start + PART_TEXTS] for start in range(0, len(vectors), PART_TEXTS))
            return vectors if all(np.isfinite(block).all() for block in blocks) else None
    return None
