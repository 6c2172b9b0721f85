"""Embeddings in pipelines of ``ray.data``: a callable class that opens its encoder once in each worker.

>>> import ray  # doctest: +SKIP
>>> from nearfar.ray import Embed
>>> rows = ray.data.read_parquet("corpus")  # doctest: +SKIP
>>> settings = {"model": "runs/first", "column": "text", "normalize": True}
>>> rows.map_batches(Embed, fn_constructor_kwargs=settings, concurrency=4).write_parquet("out")  # doctest: +SKIP

For files in and files out, ``nearfar encode --shard-rows`` does more: parts with fixed names, and resuming.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearfar.types import NearfarError, Precision


class Embed:
    """Adds a column of embeddings to batches of rows, in Ray's default format: column name -> array of values.

    Args:
        model: a model folder, the folder of a finished training run, or ``owner/name`` on the Hugging Face Hub. All
            machines must see a folder at the same path; give an absolute one.
        column: the column with the texts.
        output: the column of the embeddings, float32 [rows, dim]; it must be a new one.
        normalize: scale each embedding to unit length.
        prompt: put before each text; by default the model's own default prompt.
        pooling: as in :meth:`nearfar.Encoder.from_pretrained`.
        max_length: as in :meth:`nearfar.Encoder.from_pretrained`.
        dimensions: as in :meth:`nearfar.Encoder.encode`.
        precision: as in :meth:`nearfar.Encoder.encode`.
        device: as in :meth:`nearfar.Encoder.from_pretrained`.

    Raises:
        NearfarError: the model cannot be opened, or a setting is not valid.
    """

    def __init__(
        self,
        model: str | Path,
        column: str = "text",
        *,
        output: str = "vector",
        normalize: bool = False,
        prompt: str | None = None,
        pooling: str | None = None,
        max_length: int | None = None,
        dimensions: int | None = None,
        precision: Precision = "auto",
        device: str | None = None,
    ) -> None:
        from nearfar.encoder.encoder import Encoder
        from nearfar.encoder.prompts import truncated_width

        self.column, self.output = column, output
        self.encoder: Encoder = Encoder.from_pretrained(
            model, pooling=pooling, max_length=max_length, prompt=prompt, device=device
        )
        truncated_width(dimensions, self.encoder.dim, self.encoder.matryoshka)
        self._settings: dict[str, Any] = {"normalize": normalize, "dimensions": dimensions, "precision": precision}

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch with the embeddings of its texts.

        Raises:
            NearfarError: the batch has another format, no such column or already the new one, or a value that is not
                text (its row in the batch is named).
        """
        if not isinstance(batch, Mapping):
            raise NearfarError(
                f"Embed takes batches as a dict of arrays, not as {type(batch).__name__}; give map_batches "
                "batch_format='numpy', or leave batch_format out."
            )
        if self.column not in batch:
            raise NearfarError(f"Embed: the rows have no column {self.column!r}. Their columns: {', '.join(batch)}.")
        if self.output in batch:
            raise NearfarError(f"Embed: the rows have a column {self.output!r} already; give another output.")
        return {**batch, self.output: self.encoder.encode(list(batch[self.column]), **self._settings)}
