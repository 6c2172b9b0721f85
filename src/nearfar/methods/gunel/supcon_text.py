"""supcon-text: labelled sentences, by the loss of Gunel et al. 2021 (arXiv 2011.01403).

Their "Supervised Contrastive Learning for Pre-trained Language Model Fine-tuning" adds this loss to the cross-entropy
of a classifier. Here it trains a sentence encoder alone: texts of one label move together, others move apart, and no
head is needed.

Data: rows of one text and its label. The loss of a batch is the mean of :func:`nearfar.objectives.supcon` (eq. 4) over
the texts that have another of their label in it. Batches should be balanced, so that each text has one: in a random
batch of 16 many labels occur once.

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

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.data.batching import TextBatch, TextBatches
from nearfar.methods.base import EmbedFn, Loss, Method
from nearfar.methods.describe import pluralize
from nearfar.methods.gunel import SupconTextConfig
from nearfar.objectives import by_rows, supcon
from nearfar.runtime.transfer import to_device
from nearfar.types import NearfarError


def supcon_text(
    config: SupconTextConfig, embed: EmbedFn, batches: TextBatches, *, label_names: Sequence[str] = ()
) -> Method:
    """Train so that texts of one label are near each other and far from the others.

    The targets of ``batches`` are label numbers; ``label_names`` are their names, where known. A text that comes twice
    in a batch counts once, as it can be neither its own positive nor its own negative: its first row decides, also if
    rows of the same text have different labels.

    Terms: ``accuracy``, the share of texts with a positive whose nearest other text in the batch has their label.
    Raises NearfarError for rows without labels or of several texts, labels that are not integers, a single label, a
    label with a single distinct text, and a batch size below 3.
    """
    _require_labels(batches, label_names)

    def loss_fn(batch: TextBatch, embeddings: Tensor) -> Loss:
        labels = torch.tensor(_labels(batch))
        per_anchor = supcon(embeddings, labels, temperature=config.temperature)
        total = per_anchor.sum() / max(len(per_anchor), 1)  # 0, not 0 / 0, without an anchor
        return Loss(total, {"accuracy": _accuracy(embeddings.detach(), labels)})

    def describe(batch: TextBatch) -> list[str]:
        labels = _labels(batch)
        lines: list[str] = []
        for label in dict.fromkeys(labels):
            alike = [text for text, other in zip(batch.sentences, labels, strict=True) if other == label]
            others = pluralize(len(labels) - len(alike), "other text", "other texts")
            role = "positives of each other" if len(alike) > 1 else "no anchor, as it is alone"
            lines.append(f"{'label':<10}  {_name(label, label_names)}: {role}; negatives: {others}")
            lines += [f"  {'text':<8}  {text}" for text in alike]
        return lines

    return Method("supcon-text", batches, _sentences, embed, loss_fn, describe)


def _sentences(batch: TextBatch) -> list[str]:
    return batch.sentences


def _labels(batch: TextBatch) -> list[int]:
    """The label of each distinct text: that of its first row in the batch."""
    first: dict[int, int] = {}
    for text, label in zip(batch.columns[0], batch.targets, strict=True):
        first.setdefault(text, int(label))
    return [first[text] for text in range(len(batch.sentences))]


def _accuracy(embeddings: Float[Tensor, "batch dim"], labels: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
    unit = torch.nn.functional.normalize(embeddings.float(), dim=1)
    index = torch.arange(len(unit), device=unit.device)

    def nearest_other(rows: slice) -> Int[Tensor, " anchors"]:
        return (unit[rows] @ unit.T).scatter_(1, index[rows, None], -torch.inf).argmax(dim=1)

    nearest = by_rows(nearest_other, len(unit), len(unit))
    _, label, sizes = labels.unique(return_inverse=True, return_counts=True)
    anchors = sizes[label] > 1
    count = max(int(anchors.sum()), 1)
    labels, anchors = to_device(labels, unit.device), to_device(anchors, unit.device)
    return ((labels[nearest] == labels) & anchors).sum() / count


def _require_labels(batches: TextBatches, label_names: Sequence[str]) -> None:
    """Refuse rows of which some or all cannot be trained on."""
    width = len(batches.texts[0])
    if width != 1:
        raise NearfarError(f"supcon-text trains on labelled single texts, but each row has {width}")
    if batches.targets is None:
        raise NearfarError("supcon-text needs a label for each text; name its column")
    if batches.batch_size < 3:
        raise NearfarError(
            f"--batch-size is {batches.batch_size}, but supcon-text compares a text with one of its label and one of "
            "another; make it 3 or more"
        )
    texts: dict[int, set[str]] = {}
    for row, ((text,), label) in enumerate(zip(batches.texts, batches.targets, strict=True)):
        if label != int(label):
            raise NearfarError(f"row {row}: {text!r} is labelled {label}, but labels must be integers")
        texts.setdefault(int(label), set()).add(text)
    if len(texts) == 1:
        raise NearfarError(
            f"all {len(batches.texts)} rows are labelled {_name(next(iter(texts)), label_names)}, so there is nothing "
            "to push away; add rows of other labels"
        )
    for label, alike in texts.items():
        if len(alike) == 1:
            raise NearfarError(
                f"the label {_name(label, label_names)} has a single text, {next(iter(alike))!r}, so there is nothing "
                "to pull it towards; add another text of this label, or leave it out"
            )


def _name(label: int, label_names: Sequence[str]) -> str:
    return label_names[label] if 0 <= label < len(label_names) else str(label)
