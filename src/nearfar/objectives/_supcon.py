"""Supervised contrastive learning for fine-tuning: examples with the same label are positives."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nearfar.objectives._contrast import RowMask, contrast
from nearfar.objectives._similarity import check_shapes
from nearfar.runtime.gpu import to_device


def supcon(
    embeddings: Float[Tensor, "batch dim"], labels: Int[Tensor, " batch"], *, temperature: float
) -> Float[Tensor, " anchors"]:
    """Pull each example towards the batch's other examples of its label, and away from the rest.

    l_i = -1/(N_{y_i} - 1) sum_{j != i, y_j = y_i} log[ exp(cos(z_i, z_j) / t) / sum_{k != i} exp(cos(z_i, z_k) / t) ]

    with N_y the number of examples of label y and t the temperature; the embeddings are scaled to length 1 here.
    Returns one loss per example that has another of its label, in the batch's order. Without such an example the
    result is empty but still attached to the graph. The paper sums these losses.

    float16 and bfloat16 vectors are compared in float32, also under autocast, and give float32 losses; other dtypes
    are kept. A zero vector has cosine 0 with every vector, and no gradient. Labels may be on the CPU if embeddings are
    on a GPU: Python then does not wait for the GPU.

    Raises NearfarError for a temperature that is not positive and shapes that do not match.

    Source: Gunel et al. 2021, the SCL loss.

    >>> supcon(torch.eye(4), torch.tensor([5, 5, 5, 5]), temperature=0.3)  # log 3, all but the anchor
    tensor([1.0986, 1.0986, 1.0986, 1.0986])
    >>> supcon(torch.eye(4), torch.tensor([0, 1, 2, 0]), temperature=0.3).shape
    torch.Size([2])
    """
    check_shapes("embeddings [batch dim], labels [batch]", embeddings, labels)
    _, label, sizes = labels.unique(return_inverse=True, return_counts=True)
    is_anchor = sizes[label] > 1
    anchors, labels = (to_device(x, embeddings.device) for x in (is_anchor.nonzero().squeeze(1), labels))
    others = ~RowMask.equal(anchors, torch.arange(len(labels), device=labels.device))
    positives = RowMask.equal(labels[anchors], labels) & others
    chosen = embeddings if bool(is_anchor.all()) else embeddings[anchors]
    return contrast(chosen, embeddings, positives, others, temperature=temperature, similarity="cosine")
