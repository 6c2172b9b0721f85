"""Batches in which all rows of a premise meet, for ``SentenceTransformerTrainer``."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from sentence_transformers.base.sampler import DefaultBatchSampler

from nearfar.data.batching import NliBatches
from nearfar.types import ENTAILMENT, NearfarError, NliRow

if TYPE_CHECKING:
    from datasets import Dataset


class PremiseBatches(DefaultBatchSampler):
    """A ``batch_sampler``: all rows with the same premise are in one batch; premises are shuffled in each epoch.

    Give the class itself to ``SentenceTransformerTrainingArguments(batch_sampler=PremiseBatches)``. The batches are
    those of ``nearfar train scl`` with the same rows, batch size and seed (:class:`nearfar.data.batching.NliBatches`):
    a premise that does not fit starts the next batch, and one with more rows than a batch is a batch by itself. No row
    is dropped, whatever ``drop_last`` says.

    Args:
        dataset: the rows; its first column that is no label has the premises.
        batch_size: maximum number of rows in a batch.
        drop_last: has no effect.
        valid_label_columns: the names of label columns.
        generator: has no effect; the order depends on ``seed`` and the epoch.
        seed: seed of the order.

    Raises:
        NearfarError: a data set without rows or without a column of texts.
    """

    def __init__(
        self,
        dataset: "Dataset",
        batch_size: int,
        *,
        drop_last: bool = False,
        valid_label_columns: list[str] | None = None,
        generator: torch.Generator | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(
            dataset,
            batch_size=batch_size,
            drop_last=drop_last,
            valid_label_columns=valid_label_columns,
            generator=generator,
            seed=seed,
        )
        columns = [name for name in dataset.column_names if name not in (valid_label_columns or ())]
        if not columns:
            raise NearfarError(f"PremiseBatches: the data set has no column of premises, only {dataset.column_names}")
        rows = [NliRow(premise, "", ENTAILMENT) for premise in dataset[columns[0]]]
        self._batches = NliBatches(rows, min(batch_size, max(len(rows), 1)), seed=seed)

    def __iter__(self) -> Iterator[list[int]]:
        """The row indices of each batch of the epoch that ``set_epoch`` chose."""
        for batch in self._batches.epoch(self.epoch):
            yield batch.rows

    def __len__(self) -> int:
        """The number of batches of this epoch."""
        return self._batches.steps(self.epoch)
