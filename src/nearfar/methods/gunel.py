"""Gunel et al. 2021, "Supervised Contrastive Learning for Pre-trained Language Model Fine-tuning" (arXiv 2011.01403).

``scl-finetune``: classifiers. An encoder and a classification head are trained on labelled texts, or pairs of texts
that are read as one sequence:

    loss = (1 - lambda) CE + lambda SCL                                                                    (eq. 1)

with CE the cross-entropy of the head (eq. 2) and SCL :func:`nearfar.objectives.supcon` (eq. 3) of the last hidden state
of [CLS], scaled to length 1; the head gets that state unscaled. If rows have scores instead of labels (STS-B), the loss
is the mean squared error of the head's one output, as in GLUE's baselines and in the SimCSE review; there is no SCL.

====================  =============================  ==========================================================
                      paper                          here
====================  =============================  ==========================================================
backbone              RoBERTa-large, fairseq         any of transformers, with the head of its family
lambda, temperature   0.9, 0.3 almost everywhere,    0.9, 0.3
                      of 0.1 to 1 and 0.1 to 0.7
SCL over anchors      sum over the batch             the same, or their mean (``scl_reduction``); 0 without a positive
a text twice          two examples                   two examples
optimiser             Adam, 1e-5, batch 16           AdamW without decay, 1e-5, batch 16
dropout               0.1                            the model's own, 0.1 in BERT and RoBERTa
====================  =============================  ==========================================================

``supcon-text``: the same loss trains a sentence encoder alone. Texts of one label move together, others move apart, and
no head is needed. The loss of a batch is the mean of :func:`nearfar.objectives.supcon` over the texts that have another
of their label in it. Batches should be balanced, so that each text has one: in a random batch of 16 many labels occur
once.

====================  =============================  ==========================================================
                      paper                          here
====================  =============================  ==========================================================
loss                  (1 - 0.9) CE + 0.9 SCL         SCL
sum over anchors      sum                            mean over those with a positive; 0 if there are none
embedding             [CLS]                          the encoder's
a text twice          two examples                   one: its first row in the batch, also where labels differ
batch                 16, drawn from all rows        as many texts of each label
temperature           0.1, 0.3, 0.5, 0.7 tried       0.3, the best almost everywhere
====================  =============================  ==========================================================

The authors published no code.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from nearfar.config.bounds import File, Temperature
from nearfar.config.training import FinetuneConfig, TrainConfig
from nearfar.methods import base
from nearfar.methods.settings import TextColumn
from nearfar.types import Loss, Method, MethodEntry

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor, nn

    from nearfar.data.batching import TextBatch, TextBatches
    from nearfar.data.rows import TextData

PAPER = base.bibtex("gunel2021supervised")
StatesFn: TypeAlias = "Callable[[Sequence[tuple[str, ...]]], Tensor]"
"""Texts or pairs -> the last hidden state of each one's [CLS], [items, dim], with gradient."""


@dataclass(frozen=True, kw_only=True)
class SupconTextConfig(TextColumn, TrainConfig):
    """supcon-text: supervised contrastive loss over the labels of texts (the loss of Gunel et al. 2021)."""

    # --- Rows ---

    data: tuple[File, ...] = ()
    """Labelled texts: files with the columns below, or trec, sst2, sst5, mr, cr, subj, mpqa."""
    label_column: str = "label"
    """Column of the labels."""

    # --- Options ---

    temperature: Temperature = 0.3
    """Divides the cosines (best almost everywhere in Gunel et al. 2021)."""


def scl_finetune(
    config: FinetuneConfig, states: StatesFn, head: "nn.Module", batches: "TextBatches", *, label_names: Sequence[str]
) -> Method:
    """Fine-tune a classifier: ``states`` and ``head`` are its two halves.

    The targets of ``batches`` are indices into ``label_names``. Without ``label_names`` they are scores, and the loss
    is the squared error. With ``scl_weight`` 0 the loss is exactly the cross-entropy, bit for bit.

    Terms: ``ce``, ``scl`` (if it has a weight) and ``accuracy`` of the head; ``mse`` for scores.
    """
    import torch
    from torch.nn import functional

    from nearfar.objectives import supcon, to_device

    scl_weight = config.scl_weight

    def loss_fn(batch: "TextBatch", rows: "Tensor") -> Loss:
        outputs = head(rows).float()
        if not label_names:
            targets = to_device(torch.tensor(batch.targets, dtype=outputs.dtype), outputs.device)
            error = functional.mse_loss(outputs.squeeze(1), targets)
            return Loss(error, {"mse": error.detach()})
        on_cpu = torch.tensor([int(target) for target in batch.targets])
        labels = to_device(on_cpu, outputs.device)
        ce = functional.cross_entropy(outputs, labels)
        terms = {"ce": ce.detach(), "accuracy": (outputs.detach().argmax(dim=1) == labels).float().mean()}
        if not scl_weight:
            return Loss(ce, terms)
        per_anchor = supcon(rows, on_cpu, temperature=config.temperature)
        anchors = max(len(per_anchor), 1) if config.scl_reduction == "mean" else 1  # 0, not 0 / 0, without an anchor
        scl = per_anchor.sum() / anchors
        return Loss((1 - scl_weight) * ce + scl_weight * scl, terms | {"scl": scl.detach()})

    def describe(batch: "TextBatch") -> list[str]:
        return base.describe_rows(
            batch, lambda target: (label_names[int(target)] if label_names else f"{target:g}", "")
        )

    return Method("scl-finetune", batches, _row_texts, states, loss_fn, describe, head)


def _row_texts(batch: "TextBatch") -> list[tuple[str, ...]]:
    """The rows, each with its texts."""
    return [tuple(batch.sentences[text] for text in row) for row in zip(*batch.columns, strict=True)]


def read_rows(config: SupconTextConfig) -> "TextData":
    """Read labelled texts."""
    from nearfar.data.rows import load_labelled

    data = base.require_data(config, "supcon-text")
    return load_labelled(data, text_column=config.text_column, label_column=config.label_column, limit=config.limit)


def build_supcon_text(config: SupconTextConfig, context: base.BuildContext, rows: "TextData") -> base.BuiltMethod:
    """Build supcon-text: texts of one label are near each other and far from the others. Batches are balanced.

    A text that comes twice in a batch counts once, as it can be neither its own positive nor its own negative: its
    first row decides, also if rows of the same text have different labels.

    Terms: ``accuracy``, the share of texts with a positive whose nearest other text in the batch has their label.

    Raises:
        NearfarError: a single label, a label with a single distinct text, and a batch size below 4.
    """
    import torch

    from nearfar.data.labelled import label_summary
    from nearfar.objectives import supcon

    names, targets = rows.label_names, [int(target) for target in rows.targets or ()]
    batches = context.batches(config, rows, balanced=True)

    def loss_fn(batch: "TextBatch", embeddings: "Tensor") -> Loss:
        labels = torch.tensor(_labels(batch))
        per_anchor = supcon(embeddings, labels, temperature=config.temperature)
        total = per_anchor.sum() / max(len(per_anchor), 1)  # 0, not 0 / 0, without an anchor
        return Loss(total, {"accuracy": _accuracy(embeddings.detach(), labels)})

    def describe(batch: "TextBatch") -> list[str]:
        return base.describe_rows(batch, lambda label: (names[int(label)],))

    method = Method("supcon-text", batches, base.sentences_of, context.encoder.embed, loss_fn, describe)
    counts = Counter(targets)
    labels = label_summary({name: counts[number] for number, name in enumerate(names)})
    return base.BuiltMethod(method, [*base.text_facts(rows), *labels])


def _labels(batch: "TextBatch") -> list[int]:
    """The label of each distinct text: that of its first row in the batch."""
    first: dict[int, int] = {}
    for text, label in zip(batch.columns[0], batch.targets, strict=True):
        first.setdefault(text, int(label))
    return [first[text] for text in range(len(batch.sentences))]


def _accuracy(embeddings: 'Float[Tensor, "batch dim"]', labels: 'Int[Tensor, " batch"]') -> 'Float[Tensor, ""]':
    import torch

    from nearfar.objectives import by_rows, to_device

    unit = torch.nn.functional.normalize(embeddings.float(), dim=1)
    index = torch.arange(len(unit), device=unit.device)

    def nearest_other(rows: slice) -> 'Int[Tensor, " anchors"]':
        return (unit[rows] @ unit.T).scatter_(1, index[rows, None], -torch.inf).argmax(dim=1)

    nearest = by_rows(nearest_other, len(unit), len(unit))
    _, label, sizes = labels.unique(return_inverse=True, return_counts=True)
    anchors = sizes[label] > 1
    count = max(int(anchors.sum()), 1)
    labels, anchors = to_device(labels, unit.device), to_device(anchors, unit.device)
    return ((labels[nearest] == labels) & anchors).sum() / count


METHODS = {
    "supcon-text": MethodEntry(config=SupconTextConfig, read_rows=read_rows, build=build_supcon_text, papers=(PAPER,)),
    "scl-finetune": MethodEntry(config=FinetuneConfig, command="finetune", papers=(PAPER,)),
}
