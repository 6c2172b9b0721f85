"""Heads that are trained beside an encoder and dropped afterwards."""

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from nearfar.types import LABEL_NAMES, NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder


class SoftmaxHead(nn.Module):
    """Pair features [u; v; |u - v|] of width 3 dim -> logits over the labels.

    ``layers=2`` is the head of Liao 2021 (section 3): 3 dim -> 3 dim / 2 -> classes, without an activation between the
    two linear layers, as in the authors' code. ``layers=1`` is SBERT's (Reimers & Gurevych 2019, section 3): 3 dim ->
    classes. Weights have torch's default initialisation, drawn from its global generator.

    Raises:
        NearfarError: another number of layers.
    """

    def __init__(self, dim: int, *, classes: int = len(LABEL_NAMES), layers: int = 2) -> None:
        super().__init__()
        widths = {1: (3 * dim, classes), 2: (3 * dim, 3 * dim // 2, classes)}
        if layers not in widths:
            raise NearfarError(f"the softmax head has 1 or 2 layers, not {layers}")
        self.linears = nn.Sequential(*(nn.Linear(*ends) for ends in pairwise(widths[layers])))

    def forward(self, features: Float[Tensor, "pairs features"]) -> Float[Tensor, "pairs classes"]:
        """Logits of each pair, in the head's dtype even if the encoder's precision is lower."""
        return self.linears(features.to(next(self.parameters()).dtype))


class TanhHead(nn.Module):
    """Embedding -> tanh(W x + b) of the same width: SimCSE's MLP on [CLS].

    Gao et al. 2021, sections 3 and 6.3: trained with the encoder and, in the unsupervised setting, not used at test
    time. Weights have torch's default initialisation, drawn from its global generator.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, embeddings: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch dim"]:
        """The head's output for each embedding, in the head's dtype."""
        return self.linear(embeddings.to(self.linear.weight.dtype)).tanh()


class ProjectionHead(nn.Module):
    """Projects embeddings and views to a common space: dim -> ``width`` -> ``width``, with GELU after each layer.

    The f of Kim et al. 2021 (section 3), applied to embeddings and views and dropped after training. Weights are drawn
    from a normal distribution with standard deviation ``std`` (the backbone's ``initializer_range``, as in the authors'
    code) by torch's global generator; biases start at 0.
    """

    def __init__(self, dim: int, width: int = 4096, *, std: float = 0.02) -> None:
        super().__init__()
        first, second = nn.Linear(dim, width), nn.Linear(width, width)
        self.layers = nn.Sequential(first, nn.GELU(), second, nn.GELU())
        for linear in (first, second):
            nn.init.normal_(linear.weight, std=std)
            nn.init.zeros_(linear.bias)

    def forward(self, vectors: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch width"]:
        """The projection of each vector, in the head's dtype; leading axes are kept."""
        return self.layers(vectors.to(next(self.parameters()).dtype))


class LinearHead(nn.Module):
    """Embedding -> W x + b of another width: the projection of a student to the width of its teacher.

    W starts with orthonormal columns, or rows if the result is narrower, so that where it widens all cosines are kept;
    it is drawn from torch's global generator. b starts at 0. :func:`start_at_rotation` fits W to vectors.
    """

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, width)
        start_orthogonal(self.linear)

    def forward(self, embeddings: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch width"]:
        """The projection of each embedding, in the head's dtype."""
        return self.linear(embeddings.to(self.linear.weight.dtype))


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
    from nearfar.encoder.encoder_folder import new_dense

    dense = new_dense(encoder.dim, width, nn.Identity())
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


class RegressionHead(nn.Module):
    """Pair features [|u - v|; u * v] of width 2 dim -> one predicted score per pair, by one linear layer.

    The output is not bounded; it is trained by squared error against scores scaled to 0..1. Weights have torch's
    default initialisation, drawn from its global generator.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * dim, 1)

    def forward(self, features: Float[Tensor, "pairs features"]) -> Float[Tensor, " pairs"]:
        """The predicted score of each pair, in the head's dtype."""
        return self.linear(features.to(self.linear.weight.dtype)).squeeze(-1)
