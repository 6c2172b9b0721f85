"""Queries and documents: which prompt a text of a batch gets.

Anchors and premises are queries; positives, negatives and hypotheses are documents. The same text may be a query in one
row and a document in another; it is then encoded once as each. Which texts are equal is always judged without prompts.
Texts of methods that do not distinguish the two (single texts, scored pairs, back-translations) get the model's default
prompt.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from nearfar.encoder.training_encoder import TrainingEncoder, TrainingText


class Roles(NamedTuple):
    """The prompts of queries and documents, and the default prompt."""

    query: str = ""
    document: str = ""
    default: str = ""

    @classmethod
    def of(cls, encoder: "TrainingEncoder") -> "Roles":
        """The prompts of an encoder."""
        return cls(encoder.encoder.query_prompt, encoder.encoder.document_prompt, encoder.default_prompt)

    @property
    def are_equal(self) -> bool:
        """Whether all texts get the default prompt."""
        return self.query == self.document == self.default

    def rows(self, rows: Sequence[Sequence[str]]) -> "Iterator[Sequence[TrainingText]]":
        """The texts of rows, to be read; the first column has the queries, the others the documents."""
        from nearfar.encoder.prompts import PromptedText

        if self.are_equal:
            yield from rows
            return
        for query, *documents in rows:
            yield (PromptedText(self.query, query), *(PromptedText(self.document, text) for text in documents))

    def items(self, texts: list[str], queries: Sequence[int], documents: Sequence[int]) -> "Sequence[TrainingText]":
        """What is encoded for a batch: each distinct pair of prompt and text once.

        Args:
            texts: the distinct texts of the batch.
            queries: indices in ``texts`` of the queries; an index may occur several times.
            documents: indices in ``texts`` of the documents.
        """
        from nearfar.encoder.prompts import PromptedText

        if self.are_equal:
            return texts
        if self.query == self.document:
            return [PromptedText(self.query, text) for text in texts]
        both = [PromptedText(self.query, texts[text]) for text in queries]
        both += [PromptedText(self.document, texts[text]) for text in documents]
        return list(dict.fromkeys(both))

    def split(
        self, vectors: "Tensor", texts: list[str], queries: Sequence[int], documents: Sequence[int]
    ) -> "tuple[Tensor, Tensor]":
        """The vectors of all texts as queries, and as documents.

        ``vectors`` are those of :meth:`items` of the same arguments. Row i of a result belongs to ``texts[i]``; the row
        of a text that does not have this role is arbitrary and must not be used.
        """
        import torch

        from nearfar.encoder.prompts import PromptedText
        from nearfar.runtime.transfer import to_device

        if self.query == self.document:
            return vectors, vectors
        place = {item: row for row, item in enumerate(self.items(texts, queries, documents))}
        rows = (
            to_device(torch.tensor([place.get(PromptedText(prompt, text), 0) for text in texts]), vectors.device)
            for prompt in (self.query, self.document)
        )
        as_queries, as_documents = (vectors[row] for row in rows)
        return as_queries, as_documents


NO_PROMPTS = Roles()
"""All texts are encoded without a prompt."""
