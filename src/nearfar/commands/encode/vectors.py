"""The encoder that a verb opens; and the vectors of its texts, kept beside its output for a second call.

Until the output is complete, ``OUTPUT.vectors/KEY.npy`` holds the vectors of all texts, and ``OUTPUT.vectors/KEY`` the
finished parts while they are computed. KEY is a hash of model, settings and texts, so vectors of other texts are never
read.
"""

import hashlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from nearfar.commands.encode.corpus import InputFile
from nearfar.commands.encode.parts import OnTexts, Parts, Piece, Plan, VectorSettings
from nearfar.disk import check_regular, remove
from nearfar.disk.folders import folder_lock
from nearfar.disk.places import LocalFolder
from nearfar.types import ARRAY_ERRORS, Precision

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.prompts import Role

PART_TEXTS = 2**11
"""Number of texts that are encoded and saved together."""


class OpenEncoder(NamedTuple):
    """An encoder, the fingerprint of its model, and whether it computes in bfloat16."""

    encoder: "Encoder"
    model: str
    bf16: bool

    def of_role(self, role: "Role | None") -> "OpenEncoder":
        """The encoder of texts of a ``role``: that of documents, where they have their own, and of other texts."""
        from nearfar.runs.fingerprints import fingerprint_model

        documents = self.encoder.documents
        if role == "query" or documents is None:
            return self
        return OpenEncoder(documents, fingerprint_model(documents.source or ""), self.bf16)

    def pieces(
        self,
        blocks: Iterable[tuple[int, list[str]]],
        *,
        role: "Role | None" = None,
        on_texts: OnTexts = lambda _: None,
        **how: Any,
    ) -> Generator[Piece]:
        """The vectors of blocks of texts of a ``role``, given as (start, texts).

        ``how`` is ``normalize`` and ``dimensions`` of :meth:`nearfar.Encoder.encode_tokens`.

        Raises:
            NotFiniteError: a vector is not finite.
        """
        from nearfar.encoder.stream import encode_blocks, tokenize_blocks

        encoder = self.of_role(role).encoder
        tokens = tokenize_blocks(encoder, blocks, role=role)
        with closing(encode_blocks(encoder, tokens, bf16=self.bf16, on_batch=on_texts, **how)) as encoded:
            for block, vectors in encoded:
                yield Piece(block.start, block.expand_distinct(vectors), len(vectors), block.tokenized.truncated)
                on_texts(len(block.rows) - len(vectors))

    def encode_texts(
        self,
        folder: Path,
        texts: Sequence[str],
        *,
        role: "Role | None" = None,
        normalize: bool = True,
        dimensions: int | None = None,
        on_texts: OnTexts = lambda _: None,
        what: str = "",
    ) -> Float32[np.ndarray, "texts dim"]:
        """The vectors of texts, memory-mapped; those that ``folder`` does not have are encoded first.

        Args:
            folder: the folder of :func:`vectors_folder`.
            texts: the texts, one or more.
            role: whether they are queries or documents, which decides their prompt and maximum length.
            normalize: scale the vectors to unit length.
            dimensions: keep the first dimensions.
            on_texts: called with numbers of texts that are done.
            what: what the warning about truncated texts begins with.

        Raises:
            NearfarError: a vector is not finite, or a file cannot be written.
        """
        encoder, model, _ = self.of_role(role)
        limit = encoder.length_of(role)
        how: dict[str, Any] = {"normalize": normalize, "dimensions": dimensions}
        settings = VectorSettings(
            model=model,
            pooling=encoder.pooling,
            prompt=encoder.prompt_of(role),
            max_length=limit,
            shard_rows=PART_TEXTS,
            block=PART_TEXTS,
            precision="bf16" if self.bf16 else "fp32",
            limit=limit,
            **how,
        )
        digest = hashlib.sha256()
        for text in texts:
            digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
        plan = Plan(settings, dimensions or encoder.dim, [InputFile("", len(texts), 0, digest.hexdigest())])
        file, shape = folder / f"{plan.digest}.npy", (plan.rows, plan.dim)
        vectors = read_vectors_file(file, shape)
        if vectors is not None:
            on_texts(plan.rows)
            return vectors
        parts = Parts(LocalFolder(str(file.with_suffix(""))), plan)
        done = parts.records(whole=True)
        on_texts(parts.rows_in(done))
        parts.complete(iter(texts), done, partial(self.pieces, role=role, on_texts=on_texts, **how))
        parts.join(file)
        parts.warn_of_truncated(what)
        remove(file.with_suffix(""))
        vectors = read_vectors_file(file, shape)
        assert vectors is not None  # just written
        return vectors


def open_encoder(model: str | Path, opening: Mapping[str, Any], precision: Precision = "fp32") -> OpenEncoder:
    """Open the encoder of a verb; ``opening`` is what :meth:`nearfar.Encoder.from_pretrained` takes.

    Raises:
        NearfarError: the model cannot be opened.
    """
    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.precision import resolve
    from nearfar.encoder.weights import locate
    from nearfar.runs.fingerprints import fingerprint_model

    folder = locate(model)
    encoder = Encoder.from_pretrained(folder, **opening)
    return OpenEncoder(encoder, fingerprint_model(folder), resolve(precision, opening["device"]) == "bf16")


@contextmanager
def vectors_folder(output: str | Path | None, *, flag: str = "--output", keep: bool = False) -> Iterator[Path]:
    """The folder ``OUTPUT.vectors``, locked; without an output, a temporary folder.

    It is emptied at the end of the block, because the output is complete, unless the block fails.

    Args:
        output: the file or folder that is made of the vectors.
        flag: the flag that names another output, for messages.
        keep: leave the vectors for a second call.

    Raises:
        NearfarError: another process uses it, or it cannot be created or emptied.
    """
    if output is None:
        with TemporaryDirectory(prefix="nearfar-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)
        return
    folder = kept_vectors(output)
    with folder_lock(folder, what=output, remove_if_empty=True, flag=flag):
        yield folder
        if not keep:
            for path in [*folder.glob("*.npy"), *(entry for entry in folder.iterdir() if entry.is_dir())]:
                remove(path)


def kept_vectors(output: str | Path) -> Path:
    """The folder of the vectors that an output is made of."""
    return Path(f"{output}.vectors")


def read_vectors_file(file: Path, shape: tuple[int, int], *dtypes: str) -> NDArray[Any] | None:
    """The finite vectors of a .npy file, memory-mapped; None if there is no such file, or a damaged or another one.

    They are float32, or have one of the ``dtypes``.
    """
    with suppress(*ARRAY_ERRORS):
        check_regular(file)
        vectors: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
        if vectors.shape == shape and vectors.dtype in ("float32", *dtypes):
            blocks = (vectors[start : start + PART_TEXTS] for start in range(0, len(vectors), PART_TEXTS))
            return vectors if all(np.isfinite(block).all() for block in blocks) else None
    return None
