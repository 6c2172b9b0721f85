"""scl-finetune: classifiers, by Gunel et al. 2021 (arXiv 2011.01403).

"Supervised Contrastive Learning for Pre-trained Language Model Fine-tuning". An encoder and a classification head are
trained on labelled texts, or pairs of texts that are read as one sequence:

    loss = (1 - lambda) CE + lambda SCL                                                                    (eq. 1)

with CE the cross-entropy of the head (eq. 2) and SCL :func:`nearfar.objectives.supcon` (eq. 3) of the last hidden state
of [CLS], scaled to length 1; the head gets that state unscaled.

====================  =============================  ==========================================================
                      paper                          here
====================  =============================  ==========================================================
backbone              RoBERTa-large, fairseq         any of transformers, with the head of its family
lambda, temperature   0.9, 0.3 almost everywhere,    0.9, 0.3
                      of 0.1 to 1 and 0.1 to 0.7
SCL over anchors      sum over the batch             mean over the anchors with a positive; 0 if there are none
a text twice          two examples                   two examples
optimiser             Adam, 1e-5, batch 16           AdamW without decay, 1e-5, batch 16
dropout               0.1                            the model's own, 0.1 in BERT and RoBERTa
====================  =============================  ==========================================================

If rows have scores instead of labels (STS-B), the loss is the mean squared error of the head's one output, as in GLUE's
baselines and in the SimCSE review; there is no SCL. The authors published no code.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from nearfar.config.finetune import FinetuneConfig
from nearfar.data.batching import TextBatch, TextBatches
from nearfar.methods.base import Loss, Method
from nearfar.objectives import supcon
from nearfar.runtime.transfer import to_device
from nearfar.types import NearfarError

StatesFn = Callable[[Sequence[tuple[str, ...]]], Tensor]
"""Texts or pairs -> the last hidden state of each one's [CLS], [items, dim], with gradient."""


def scl_finetune(
    config: FinetuneConfig, states: StatesFn, head: nn.Module, batches: TextBatches, *, label_names: Sequence[str] = ()
) -> Method:
    """Fine-tune a classifier: ``states`` and ``head`` are its two halves.

    The targets of ``batches`` are indices into ``label_names``. Without ``label_names`` they are scores, and the loss
    is the squared error. With ``scl_weight`` 0 the loss is exactly the cross-entropy, bit for bit.

    Terms: ``ce``, ``scl`` (if it has a weight) and ``accuracy`` of the head; ``mse`` for scores.
    Raises NearfarError for targets that are not label numbers.
    """
    scl_weight = config.scl_weight
    _require_targets(batches, label_names)

    def loss_fn(batch: TextBatch, rows: Tensor) -> Loss:
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
        scl = per_anchor.sum() / max(len(per_anchor), 1)  # 0, not 0 / 0, without an anchor
        return Loss((1 - scl_weight) * ce + scl_weight * scl, terms | {"scl": scl.detach()})

    def describe(batch: TextBatch) -> list[str]:
        lines = []
        for item, target in zip(_items(batch), batch.targets, strict=True):
            alike = sum(other == target for other in batch.targets) - 1
            name = label_names[int(target)] if label_names else f"{target:g}"
            contrast = f"; {alike} positive{'s' * (alike != 1)}" if label_names and scl_weight else ""
            lines += [f"{name:<14}  {item[0]}", *(f"{'':<14}  {text}" for text in item[1:])]
            lines[-1] += contrast
        return lines

    return Method("scl-finetune", batches, _items, states, loss_fn, describe, head)


def _items(batch: TextBatch) -> list[tuple[str, ...]]:
    """The rows, each with its texts."""
    return [tuple(batch.sentences[text] for text in row) for row in zip(*batch.columns, strict=True)]


def _require_targets(batches: TextBatches, label_names: Sequence[str]) -> None:
    if batches.targets is None:
        raise NearfarError("scl-finetune needs a label or a score for each row; name its column")
    for row, target in enumerate(batches.targets):
        if label_names and not (float(target).is_integer() and 0 <= target < len(label_names)):
            raise NearfarError(f"row {row} has the label {target}, but labels are 0 to {len(label_names) - 1}")
