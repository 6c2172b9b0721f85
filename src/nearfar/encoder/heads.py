"""Heads that are trained beside an encoder and dropped afterwards."""

from collections import OrderedDict
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from nearfar.types import LABEL_NAMES, NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder


class Head(nn.Sequential):
    """Named layers, one after the other, that compute in their own dtype even if the encoder's precision is lower."""

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__(OrderedDict(layers))

    def forward(self, vectors: Float[Tensor, "*batch width"]) -> Float[Tensor, "*outputs"]:
        """The output for each vector; leading axes are kept."""
        return super().forward(vectors.to(next(self.parameters()).dtype))  # type: ignore[no-untyped-call]


class SoftmaxHead(Head):
    """Pair features [u; v; |u - v|] [pairs, 3 dim] -> logits over the labels [pairs, classes].

    ``layers=2`` is the head of Liao 2021 (section 3): 3 dim -> 3 dim / 2 -> classes, without an activation between the
    two linear layers, as in the authors' code. ``layers=1`` is SBERT's (Reimers & Gurevych 2019, section 3): 3 dim ->
    classes. Weights have torch's default initialisation, drawn from its global generator.

    Raises:
        NearfarError: another number of layers.
    """

    def __init__(self, dim: int, *, classes: int = len(LABEL_NAMES), layers: int = 2) -> None:
        widths = {1: (3 * dim, classes), 2: (3 * dim, 3 * dim // 2, classes)}
        if layers not in widths:
            raise NearfarError(f"the softmax head has 1 or 2 layers, not {layers}")
        super().__init__(linears=nn.Sequential(*(nn.Linear(*ends) for ends in pairwise(widths[layers]))))


class TanhHead(Head):
    """Embeddings [batch, dim] -> tanh(W x + b) of the same width: SimCSE's MLP on [CLS].

    Gao et al. 2021, sections 3 and 6.3: trained with the encoder and, in the unsupervised setting, not used at test
    time. Weights have torch's default initialisation, drawn from its global generator.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(linear=nn.Linear(dim, dim), tanh=nn.Tanh())


class ProjectionHead(Head):
    """Projects embeddings and views [..., dim] to a common space [..., width]: two linear layers, GELU after each.

    The f of Kim et al. 2021 (section 3), applied to embeddings and views and dropped after training. Weights are drawn
    from a normal distribution with standard deviation ``std`` (the backbone's ``initializer_range``, as in the authors'
    code) by torch's global generator; biases start at 0.
    """

    def __init__(self, dim: int, width: int = 4096, *, std: float = 0.02) -> None:
        first, second = nn.Linear(dim, width), nn.Linear(width, width)
        super().__init__(layers=nn.Sequential(first, nn.GELU(), second, nn.GELU()))
        for linear in (first, second):
            nn.init.normal_(linear.weight, std=std)
            nn.init.zeros_(linear.bias)


class LinearHead(Head):
    """Embeddings [batch, dim] -> W x + b [batch, width]: the projection of a student to the width of its teacher.

    W starts with orthonormal columns, or rows if the result is narrower, so that where it widens all cosines are kept;
    it is drawn from torch's global generator. b starts at 0. :func:`start_at_rotation` fits W to vectors.
    """

    def __init__(self, dim: int, width: int) -> None:
        self.linear: nn.Linear
        super().__init__(linear=nn.Linear(dim, width))
        start_orthogonal(self.linear)


def start_orthogonal(linear: nn.Linear) -> None:
    """Draw a semi-orthogonal weight; set the bias to 0."""
    nn.init.orthogonal_(linear.weight)
    nn.init.zeros_(linear.bias)


def main_directions(vectors: Float[Tensor, "vectors width"], count: int) -> Float[Tensor, "width count"]:
    """The first ``count`` right singular vectors: no other subspace of this dimension is nearer to ``vectors``."""
    values = vectors.double()
    return torch.linalg.svd(values.T @ values).U[:, :count].to(vectors.dtype)


def start_at_rotation(
    linear: nn.Linear, inputs: Float[Tensor, "vectors dim"], targets: Float[Tensor, "vectors width"]
) -> None:
    """Set W to a semi-orthogonal matrix that maps ``inputs`` to the main part of ``targets``; set the bias to 0.

    W = V R. V are the first ``dim`` :func:`main_directions` of the targets y_i. R has orthonormal columns, or rows if
    ``width`` is smaller, and maximizes sum_i <R x_i, V^T y_i>: R = A B^T, with the thin singular value decomposition
    A S B^T of sum_i V^T y_i x_i^T.

    Source of R: Schönemann 1966, "A generalized solution of the orthogonal Procrustes problem".
    """
    x, y = inputs.double(), targets.double()
    main = main_directions(y, x.shape[1])
    left, _, right = torch.linalg.svd((y @ main).T @ x, full_matrices=False)
    with torch.no_grad():
        linear.weight.copy_(main @ left @ right)
        linear.bias.zero_()


def add_projection(encoder: "Encoder", width: int) -> nn.Linear:
    """Append a linear Dense with ``width`` outputs to ``encoder``, and return its layer. It is trained and saved.

    It starts as :class:`LinearHead`, which is used where the projection is dropped after training.
    """
    from nearfar.encoder.pretrained import module_classes

    dense = module_classes().Dense(encoder.dim, width, activation_function=nn.Identity())
    start_orthogonal(dense.linear)
    encoder.append_module(dense)
    linear: nn.Linear = dense.linear
    return linear


class MaskedLmHead(nn.Module):
    """Hidden states -> logits over the vocabulary, as BERT's head for masked tokens (Devlin et al. 2019, section 3.1).

    logits = E LayerNorm(gelu(W h + b)) + c. E is the encoder's ``word_embeddings``. They receive the head's gradient
    but are not registered as its parameters, so that optimiser and checkpoint contain them once. W maps to their width,
    which in ELECTRA is smaller than ``dim``. W is drawn from a normal distribution with standard deviation ``std`` (the
    backbone's ``initializer_range``) by torch's global generator; b and c start at 0.
    """

    def __init__(self, dim: int, word_embeddings: nn.Embedding, *, std: float = 0.02) -> None:
        super().__init__()
        self._tied = (word_embeddings,)  # in a tuple, so that torch does not register its parameters
        self.dense = nn.Linear(dim, word_embeddings.embedding_dim)
        self.norm = nn.LayerNorm(word_embeddings.embedding_dim, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(word_embeddings.num_embeddings))
        nn.init.normal_(self.dense.weight, std=std)
        nn.init.zeros_(self.dense.bias)

    def forward(self, states: Float[Tensor, "tokens dim"]) -> Float[Tensor, "tokens vocabulary"]:
        """Logits of each token, in the head's dtype."""
        features = self.norm(functional.gelu(self.dense(states.to(self.bias.dtype))))
        return functional.linear(features, self._tied[0].weight.to(features.dtype), self.bias)


class RegressionHead(Head):
    """Pair features [|u - v|; u * v] [pairs, 2 dim] -> one predicted score per pair, by one linear layer.

    The output is not bounded; it is trained by squared error against scores scaled to 0..1. Weights have torch's
    default initialisation, drawn from its global generator.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(linear=nn.Linear(2 * dim, 1), scores=nn.Flatten(0))
