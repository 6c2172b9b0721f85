"""What a method is: batches, what is encoded of them, and the loss. Training needs to know no more of a paper.

A batch names its items: each is encoded independently, a text or several texts that belong together. ``represent``
turns items into one row of numbers each, ``loss_fn`` turns the rows of the whole batch into its loss. Because the two
are separate, every method can be computed exactly in micro-batches that fit in memory, and by several processes that
see the same batch (:mod:`nearfar.training.gradients`).

This module and those of the papers import no torch at their top, because the command line reads the settings of
methods from them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from nearfar.config.training import TrainConfig
from nearfar.types import Method, NearfarError

if TYPE_CHECKING:
    from torch import Tensor

    from nearfar.data.batching import TextBatches
    from nearfar.data.rows import TextData
    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.frozen import TeacherVectors
    from nearfar.encoder.training_encoder import TrainingEncoder, TrainingText

EmbedFn: TypeAlias = "Callable[[Sequence[Any]], Tensor]"
"""Texts -> embeddings [batch, dim], differentiable, in training mode; a text that is given twice is encoded twice.

A text is a string, which gets the model's default prompt, or a :class:`nearfar.encoder.prompts.PromptedText`."""


class BuiltMethod(NamedTuple):
    """A method, ready to train."""

    method: Method
    facts: list[str]
    """Sources and number of the rows, in words."""
    extra_losses: tuple[tuple[Method, float], ...] = ()
    """Further losses on the same batches, and their weights."""
    teachers: "tuple[TeacherVectors, ...]" = ()
    """Vectors of other encoders, which are computed before the first step."""


# --- from rows to batches ---


class Roles(NamedTuple):
    """The prompts of queries and documents.

    Anchors and premises are queries; positives, negatives and hypotheses are documents. The same text may be a query in
    one row and a document in another; it is then encoded once as each. Which texts are equal is always judged without
    prompts. Texts of methods that do not distinguish the two (single texts, scored pairs, back-translations) get the
    model's default prompt.
    """

    query: str
    document: str
    frozen: "TeacherVectors | None" = None
    """The vectors of documents where they are not trained; then queries alone are encoded."""

    def rows(self, rows: Sequence[Sequence[str]]) -> "Iterator[Sequence[TrainingText]]":
        """The texts of rows, to be read; the first column has the queries, the others the documents."""
        from nearfar.encoder.prompts import PromptedText

        for query, *documents in rows:
            encoded = documents if self.frozen is None else []
            yield (PromptedText(self.query, query), *(PromptedText(self.document, text) for text in encoded))

    def items(self, batch: Any) -> "Sequence[TrainingText]":
        """What is encoded for a batch of texts or NLI pairs: each distinct pair of prompt and text once."""
        from nearfar.encoder.prompts import PromptedText

        texts = batch.sentences
        if self.frozen is not None:
            return list(dict.fromkeys(PromptedText(self.query, texts[text]) for text in batch.columns[0]))
        if self.query == self.document:
            return [PromptedText(self.query, text) for text in texts]
        queries, *documents = batch.columns
        both = [PromptedText(self.query, texts[text]) for text in queries]
        both += [PromptedText(self.document, texts[text]) for text in chain(*documents)]
        return list(dict.fromkeys(both))

    def rows_of(self, batch: Any) -> "Tensor":
        """For each column of a batch, the rows of its texts among :meth:`items`, [columns, rows] on the CPU.

        Those of documents that are not trained are arbitrary.
        """
        import torch

        columns = torch.tensor(batch.columns)
        as_queries, as_documents = self._places(batch)
        return torch.stack([as_queries[columns[0]], *as_documents[columns[1:]]])

    def frozen_vectors(self, batch: Any) -> "Tensor | None":
        """The vectors of the texts of a batch as documents that are not trained; arbitrary where a text is none.

        None where documents are trained.
        """
        if self.frozen is None:
            return None
        texts, used = batch.sentences, {*chain(*batch.columns[1:])}
        return self.frozen([text if row in used else texts[batch.columns[1][0]] for row, text in enumerate(texts)])

    def split(self, vectors: "Tensor", batch: Any) -> "tuple[Tensor, Tensor]":
        """The vectors of all texts of a batch as queries, and as documents; ``vectors`` are those of :meth:`items`.

        Row i of a result belongs to ``batch.sentences[i]``; the row of a text that does not have this role is arbitrary
        and must not be used.
        """
        from nearfar.objectives import to_device

        if self.query == self.document and self.frozen is None:
            return vectors, vectors
        as_queries, as_documents = to_device(self._places(batch), vectors.device)
        frozen = self.frozen_vectors(batch)
        return vectors[as_queries], vectors[as_documents] if frozen is None else to_device(frozen, vectors.device)

    def _places(self, batch: Any) -> "Tensor":
        """The rows of a batch's texts among :meth:`items`, as queries and as documents; 0 for what is not encoded."""
        import torch

        from nearfar.encoder.prompts import PromptedText

        if self.query == self.document and self.frozen is None:
            return torch.arange(len(batch.sentences)).expand(2, -1)
        place = {item: row for row, item in enumerate(self.items(batch))}
        prompts = (self.query, self.document)
        return torch.tensor(
            [[place.get(PromptedText(prompt, text), 0) for text in batch.sentences] for prompt in prompts]
        )


@dataclass(frozen=True)
class BuildContext:
    """What a builder gets beside the settings and the rows."""

    encoder: "TrainingEncoder"
    batch_size: int
    """Rows in a batch, of all processes together."""
    frozen: "TeacherVectors | None" = None
    """The vectors of the rows' documents where they are not trained."""

    @property
    def roles(self) -> Roles:
        """The prompts of the encoder, and the vectors of documents that are not trained."""
        return Roles(self.encoder.query_prompt, self.encoder.document_prompt, self.frozen)

    def batches(self, config: TrainConfig, loaded: "TextData", *, by_role: bool = False, **order: Any) -> "TextBatches":
        """Tokenize the texts, and batch their rows; ``order`` are further arguments of the batches.

        With ``by_role``, the first column has the queries, the others the documents.
        """
        from nearfar.data.batching import TextBatches

        self.encoder.read(self.roles.rows(loaded.rows) if by_role else loaded.rows)
        return TextBatches(loaded.rows, self.batch_size, config.seed, loaded.targets, **order)


def open_frozen(name: str, context: BuildContext, *, flag: str) -> "Encoder":
    """Another encoder beside the one that is trained, on its device; errors begin with the ``flag`` that names it."""
    from nearfar.encoder.encoder import Encoder

    try:
        return Encoder.from_pretrained(name, device=context.encoder.encoder.device).of_role(None)
    except NearfarError as error:
        raise NearfarError(f"{flag}: {error}") from error


def open_guide(
    name: str | None, config: TrainConfig, context: BuildContext, rows: "TextData"
) -> "TeacherVectors | None":
    """The vectors of a guide, a frozen encoder with its own prompt, of the texts of ``rows``; None for none."""
    from nearfar.encoder.frozen import TeacherVectors

    if name is None:
        return None
    name = config.model if name == "start" else name
    texts = (text for row in rows.rows[: config.limit] for text in row if isinstance(text, str))
    return TeacherVectors(open_frozen(name, context, flag="--guide"), texts, name=name, bf16=context.encoder.bf16)


def judged(guide: "TeacherVectors | None", batch: Any, columns: "Sequence[Tensor]") -> "list[Tensor] | None":
    """The guide's vectors of columns of texts of a batch, such as its anchors and positives, on their device."""
    if guide is None:
        return None
    vectors = guide(batch.sentences).to(columns[0].device)
    return [vectors[texts] for texts in columns]


def require_data(config: TrainConfig, name: str) -> tuple[str, ...]:
    """The data that ``config`` names, for the method ``name``, which has no default data.

    Raises:
        NearfarError: it names none.
    """
    if not config.data:
        raise NearfarError(
            f"{name} has no default data; name some with --data FILE, or as data in the table of a further set."
        )
    return config.data


def require_different(values: Iterable[Any], what: str) -> None:
    """Refuse rows that all have the same text, label or score; ``what`` names it.

    Raises:
        NearfarError: they do.
    """
    first, count = None, 0
    for count, value in enumerate(values, start=1):
        first = value if count == 1 else first
        if value != first:
            return
    if count:
        raise NearfarError(
            f"all {count} rows have the same {what}, {first!r}, so there is nothing to tell apart; add rows of others"
        )


def text_facts(loaded: "TextData") -> list[str]:
    """Sources and number of the rows, in words."""
    facts = [*loaded.sources, f"{len(loaded.rows):,} rows"]
    if loaded.dropped:
        facts.append(f"{loaded.dropped:,} rows were left out: repeated, or without information")
    return facts + repair_facts(loaded.repaired)


def repair_facts(repaired: int) -> list[str]:
    """How many fields were cleaned, in words."""
    if not repaired:
        return []
    return [f"{repaired} fields had control characters or irregular white space, now single spaces"]


def describe_rows(batch: Any, names: Sequence[str] | Callable[[Any], Sequence[str]]) -> list[str]:
    """The rows of a batch, line by line: the first text of a row, and below it the others, each after its name.

    ``names`` are those of the columns, or a function from a row's target to them. Rows that follow each other and have
    the same first text share its line.
    """
    lines: list[str] = []
    for row, texts in enumerate(zip(*batch.columns, strict=True)):
        own = names if isinstance(names, Sequence) else names(batch.targets[row])
        first, *others = (batch.sentences[text] for text in texts)
        if not others or row == 0 or texts[0] != batch.columns[0][row - 1]:
            lines.append(f"{own[0]:<10}  {first}")
        lines += [f"  {name:<8}  {text}" for name, text in zip(own[1:], others, strict=False)]
    return lines


def sentences_of(batch: Any) -> list[str]:
    """The distinct texts of a batch: the items of methods that encode each of them once."""
    sentences: list[str] = batch.sentences
    return sentences


@cache
def bibtex(key: str) -> str:
    """The entry of a paper in ``papers.bib``, for the model cards of its methods."""
    entries = Path(__file__).with_name("papers.bib").read_text("utf-8").strip().split("\n\n")
    return next(entry for entry in entries if f"{{{key}," in entry)


def initializer_range(backbone: Any) -> float:
    """Standard deviation of the initial weights in the encoder's family, which its heads take too."""
    std: float = getattr(backbone.config, "initializer_range", 0.02)
    return std
