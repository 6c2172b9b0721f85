"""The types that several packages share, and the names of tensor axes.

Axes, as they appear in signatures such as ``Float[Tensor, "pairs dim"]``:

=============  ==========================================================
batch          texts in a batch, in the caller's order
texts          texts of any number, or of a group of texts of one length
tokens         all tokens of a batch, concatenated without padding
layers         hidden layers; layer 0 is the embedding layer
dim            width of a hidden state or an embedding
teacher_dim    width of a teacher's embedding
heads          attention heads
key_heads      heads of keys and values, which several attention heads may share
head_dim       width of an attention head
pairs          rows (premise, hypothesis) of an NLI batch
anchors        rows of an objective that has one value per anchor
candidates     vectors that an anchor is compared with
features       input features of a classifier of pairs: three times dim
classes        labels of a classifier
negatives      hard negatives of a batch, one vector each
masked         masked tokens, to be predicted
vocabulary     tokens of a tokenizer's vocabulary
items          texts that a method encodes: a sentence, or one of its dropout samples
views          layers of the frozen guide
vectors        embeddings of any role
values         losses, one per vector
=============  ==========================================================
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

ENTAILMENT, NEUTRAL, CONTRADICTION = 0, 1, 2
LABEL_NAMES = ("entailment", "neutral", "contradiction")
Resolved: TypeAlias = Literal["fp32", "bf16"]
"""The precision of the computation."""
Precision: TypeAlias = Literal["auto", "fp32", "bf16"]
"""The precision setting; :func:`nearfar.encoder.precision.resolve` resolves ``auto``."""
Mix: TypeAlias = Literal["together", "proportional", "round-robin", "weighted"]
"""How sets of rows make batches: a batch of each at every step, or one of one set by size, in turn, or by weight."""
Schedule: TypeAlias = Literal["linear", "cosine", "constant"]
"""The learning rate after the warm-up."""
SelfGuidedVariant: TypeAlias = Literal["sg", "opt1", "opt2", "opt3"]
"""Which loss of Kim et al. 2021: sg, sg-opt1, sg-opt2 or sg-opt (opt3)."""
Tracker: TypeAlias = Literal["tensorboard", "wandb", "mlflow"]
"""A program that records the metrics of runs, beside ``metrics.jsonl``."""
Splits: TypeAlias = Literal["auto", "few-shot", "full", "held-out", "10-90"]
"""How fine-tuning gets its validation and test rows; see :mod:`nearfar.data.draws`."""
RetrievalMeasure: TypeAlias = Literal["ndcg@10", "mrr@10", "map@100", "recall@1", "recall@10", "recall@100"]
"""A measure of retrieval; see :mod:`nearfar.evaluation.retrieval`."""


VectorSimilarity: TypeAlias = Literal["cosine", "dot", "euclidean", "manhattan"]
"""How two vectors are compared: by their cosine, their inner product, or minus their distance."""


class NliRow(NamedTuple):
    """One natural language inference row; ``label`` indexes :data:`LABEL_NAMES`."""

    premise: str
    hypothesis: str
    label: int


class ScoredPair(NamedTuple):
    """Two texts and their similarity score, by human judges or a generator, on the scale of the data set."""

    first: str
    second: str
    score: float


Encode: TypeAlias = "Callable[[Sequence[str]], np.ndarray]"
"""A function from texts to a float array [texts, dim]; evaluation needs nothing else of a model."""
Cut: TypeAlias = Callable[[Sequence[str]], list[list[str]]]
"""A function from documents to the passages of each."""


ARRAY_HEADER_ERRORS = (ValueError, EOFError, OverflowError, TypeError, SyntaxError, TokenError)
"""What NumPy raises for a damaged .npy file: it parses the header as Python source."""
ARRAY_ERRORS = (OSError, *ARRAY_HEADER_ERRORS)
"""What NumPy raises for a .npy file that is damaged or cannot be read."""


Item: TypeAlias = Any
"""What is encoded independently; only the method's ``extract_items`` and ``represent`` look inside."""


class Loss(NamedTuple):
    """The loss of one batch."""

    value: "Tensor"
    """The loss of the representations: a scalar with gradient."""
    terms: "dict[str, Tensor]"
    """Its parts, and other measures to log: named scalars without gradient."""
    penalty: "Tensor | None" = None
    """A further part that does not depend on the representations, such as a regulariser of the weights."""

    @property
    def total(self) -> "Tensor":
        """What is minimised: the value plus the penalty."""
        return self.value if self.penalty is None else self.value + self.penalty


class Batches(Protocol):
    """The batches of every epoch, in a fixed order, from any batch on."""

    @property
    def batch_size(self) -> int: ...  # noqa: D102

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Any]: ...  # noqa: D102

    def steps(self, epoch: int) -> int: ...  # noqa: D102

    def total_steps(self, epochs: int) -> int: ...  # noqa: D102


@dataclass(frozen=True)
class Method:
    """A way to train an encoder."""

    name: str
    batches: Batches
    extract_items: Callable[[Any], Sequence[Item]]
    """The items of a batch. Random draws here and in ``loss_fn`` are the same in every process."""
    represent: "Callable[[Sequence[Item]], Tensor]"
    """Items -> [items, ...] with gradient. Row i depends on item i alone (and on dropout)."""
    loss_fn: "Callable[[Any, Tensor], Loss]"
    """A batch and the representations of all its items, in their order -> its loss."""
    describe: Callable[[Any], list[str]]
    """A batch in words, line by line, as :func:`nearfar.methods.base.describe_rows` gives them. Encodes nothing."""
    head: "nn.Module | None" = None
    """Trained with the encoder and dropped after training; None if the method needs no head."""
    count_tokens: Callable[[Sequence[Item]], Sequence[int]] | None = None
    """Number of tokens of each item that the encoder reads with gradient; None if that is not known."""
    embeddings: bool = True
    """Whether the last axis of the representations is that of an embedding, so that the loss is also defined on the
    first dimensions alone (``--matryoshka``)."""
    tensors: "Callable[[Any], Sequence[Tensor | None]] | None" = None
    """All that the loss needs of a batch: ``loss_fn`` also takes these, as a tuple, in place of the batch. The first
    has a number for each text of its rows. CUDA graphs can then repeat the loss, so shapes must not depend on values,
    and the representations may have further rows after those of the items. None where that does not hold."""

    def loss(self, batch: Any) -> Loss:
        """The loss of a batch, with all items at once in this process."""
        return self.loss_fn(batch, self.represent(self.extract_items(batch)))


@dataclass(frozen=True, kw_only=True)
class MethodEntry:
    """The parts of a method, as :mod:`nearfar.registry` finds them."""

    config: type[Any]
    """The class of its settings, a subclass of :class:`nearfar.config.training.TrainConfig`."""
    read_rows: Callable[[Any], Any] | None = None
    """``read_rows(config)`` -> :class:`nearfar.data.rows.TextData`."""
    build: Callable[[Any, Any, Any], Any] | None = None
    """``build(config, context, rows)`` -> :class:`nearfar.methods.BuiltMethod`; ``context`` is a
    :class:`nearfar.methods.BuildContext`."""
    min_rows: int = 2
    """Smallest number of rows, and the smallest batch size: 1 if rows are not contrasted with each other."""
    command: Literal["train", "finetune"] = "train"
    """The command that runs it. ``nearfar finetune`` has its own reader and builder."""
    papers: tuple[str, ...] = ()
    """BibTeX of the papers to cite, for model cards."""
    by_role: bool = False
    """Whether its rows have queries and documents, which :class:`nearfar.methods.base.Roles` tells apart."""


class NearfarError(Exception):
    """An error that the user can fix. The command line prints only its message and exits with status 2."""


def metric_title(metric: str) -> str:
    """The name of a metric in messages: ``MRR@10``, ``Spearman``, ``Accuracy``."""
    return metric.upper() if metric.startswith("mrr") else metric.capitalize()
