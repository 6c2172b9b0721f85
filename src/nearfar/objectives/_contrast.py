"""The contrastive loss that most objectives share, and how that of a large batch is cut into blocks of its rows.

An objective says what its anchors are compared with by masks, which it writes as if they were matrices
(:class:`RowMask`); here the loss is computed from them at once if the matrix of logits is small, else block by block,
without ever storing the matrix.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from nearfar.objectives._similarity import (
    Similarity,
    check_temperature,
    compute_dtype,
    prepare_pair,
    prepare_vectors,
)
from nearfar.runtime.gpu import to_device
from nearfar.types import NearfarError

BLOCK = 2**22
"""Maximum number of logits in memory, 16 MiB in float32. A matrix up to this size, 2,048 x 2,048, is not split.

Below this size, blocks would save only a few dozen MiB. Much smaller blocks are slower, because each one adds to the
gradients of all candidates; larger blocks are not faster.
"""
_SCALE_CHUNK = 1024
"""Number of vectors that are scaled at a time; each chunk is copied temporarily."""


# --- rows of large matrices ---


def row_blocks(anchors: int, candidates: int) -> list[slice]:
    """Split the rows 0 .. anchors - 1 into blocks of at most BLOCK logits, each of at least one row.

    >>> row_blocks(5, 2**21)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = max(1, BLOCK // max(1, candidates))
    return [slice(start, min(start + size, anchors)) for start in range(0, max(anchors, 1), size)]


def by_rows(rows_fn: Callable[[slice], Tensor], anchors: int, candidates: int, *, recompute: bool = False) -> Tensor:
    """Join what ``rows_fn`` returns for slices of the rows of a matrix that may be too large to store.

    With ``recompute``, what it computed is computed again in the backward pass, not kept.

    >>> by_rows(lambda rows: torch.arange(3)[rows], 3, 2**22)
    tensor([0, 1, 2])
    """
    blocks = row_blocks(anchors, candidates)
    if len(blocks) == 1:
        return rows_fn(blocks[0])
    if recompute:
        rows_fn = partial(checkpoint, rows_fn, use_reentrant=False)
    return torch.cat([rows_fn(rows) for rows in blocks])


class RowMask:
    """A boolean matrix [anchors, candidates] whose rows are computed when they are needed, as it may be too large.

    ``mask[rows]`` for a slice of the rows is a tensor, ``mask[:]`` the whole matrix; a matrix that is small enough is
    computed once. ``rows_fn`` must return the same mask each time.

    >>> same = RowMask.equal(torch.tensor([5, 6, 5]), torch.tensor([5, 6]))
    >>> same[1:]
    tensor([[False,  True],
            [ True, False]])
    >>> (~same & same).sum()
    tensor(0)
    """

    def __init__(self, rows_fn: Callable[[slice], Tensor], shape: tuple[int, int]) -> None:
        self.shape = shape
        self._rows_fn = rows_fn
        self._whole: Tensor | None = None

    @classmethod
    def equal(cls, one: Int[Tensor, " anchors"], other: Int[Tensor, " candidates"]) -> "RowMask":
        """Where an anchor's number is that of a candidate."""
        return cls(lambda rows: one[rows, None] == other, (len(one), len(other)))

    @classmethod
    def columns(cls, kept: Bool[Tensor, " candidates"], anchors: int) -> "RowMask":
        """The same candidates for all anchors."""
        return cls(lambda rows: kept.expand(len(range(anchors)[rows]), -1), (anchors, len(kept)))

    def __getitem__(self, rows: slice) -> Bool[Tensor, "anchors candidates"]:
        """The mask of some anchors."""
        if self._whole is None and len(row_blocks(*self.shape)) == 1:
            self._whole = self._rows_fn(slice(0, self.shape[0]))
        return self._whole[rows] if self._whole is not None else self._rows_fn(slice(*rows.indices(self.shape[0])))

    def __and__(self, other: "RowMask") -> "RowMask":
        return RowMask(lambda rows: self[rows] & other[rows], self.shape)

    def __or__(self, other: "RowMask") -> "RowMask":
        return RowMask(lambda rows: self[rows] | other[rows], self.shape)

    def beside(self, other: "RowMask") -> "RowMask":
        """The columns of this mask and then those of another one."""
        shape = (self.shape[0], self.shape[1] + other.shape[1])
        return RowMask(lambda rows: torch.cat([self[rows], other[rows]], dim=1), shape)

    def repeated(self, times: int) -> "RowMask":
        """Each column several times, one after the other."""
        shape = (self.shape[0], times * self.shape[1])
        return RowMask(lambda rows: self[rows].repeat_interleave(times, dim=1), shape)

    def __invert__(self) -> "RowMask":
        return RowMask(lambda rows: ~self[rows], self.shape)

    def to(self, device: torch.device) -> "RowMask":
        """The same mask on ``device``; that of text ids on the CPU is computed there, so that a GPU never has to wait.

        Operations whose shapes depend on values, such as ``unique``, make Python wait for the GPU, and a mask takes
        dozens of short operations, each of which a GPU needs longer to start than a CPU to finish.
        """
        return self if device.type == "cpu" else RowMask(lambda rows: to_device(self[rows], device), self.shape)

    def sum(self) -> Int[Tensor, ""]:
        """The number of candidates that are True, over all anchors."""
        return by_rows(lambda rows: self[rows].sum(dim=1), *self.shape).sum()

    def all_candidates(self) -> Bool[Tensor, " anchors"]:
        """For each anchor whether all of its candidates are True."""
        return by_rows(lambda rows: self[rows].all(dim=1), *self.shape)


# --- the loss ---


class Sets(NamedTuple):
    """What some anchors are compared with, row by row, on the device of the vectors."""

    positives: Int[Tensor, " anchors"] | Bool[Tensor, "anchors candidates"] | None
    """P: the column of each anchor's single positive, or a mask of its positives; None for no positives."""
    kept: Bool[Tensor, "anchors candidates"] | None = None
    """C: the candidates in each anchor's denominator, its positives among them; None for all."""
    raised: Int[Tensor, " anchors"] | None = None
    """One column for each anchor, to whose logit ``weight`` is added."""
    weight: float = 0.0


SetsFn: TypeAlias = Callable[[slice], Sets]
"""A slice of the anchors -> their sets. It is called again for gradients, and must return the same sets."""


def contrast(
    anchors: Float[Tensor, "anchors dim"],
    candidates: Float[Tensor, "candidates dim"],
    positives: Int[Tensor, " anchors"] | RowMask | None,
    kept: Bool[Tensor, "anchors candidates"] | RowMask | None = None,
    *,
    temperature: float,
    similarity: Similarity,
    raised: Int[Tensor, " anchors"] | None = None,
    weight: float = 0.0,
    mean_reduction: bool = True,
) -> Float[Tensor, " anchors"]:
    """Return l_i = log sum_{k in C} exp(x_ik) - 1/|P| sum_{j in P} x_ij; without positives only the first term.

    The logit x_ik is s(a_i, c_k) / t, plus ``weight`` in the column ``raised`` of each anchor. P is ``positives``, the
    column of each anchor's single positive or a mask of several; C is ``kept``, by default all candidates. A single
    positive is always kept, several must be among ``kept``. All of these may be on the CPU for vectors on a GPU.
    Computed in float32 or better, also under autocast.

    If there are more logits than :data:`BLOCK`, they are computed in blocks of anchors and not kept: memory is linear,
    not quadratic, in the number of vectors. ``mean_reduction`` says that the loss is the mean of the values, or another
    multiple of their sum: the gradient of the sum is then computed in the forward pass, with as many matrix products as
    without blocks. A loss that weights the values differently still gets the correct gradient, but its logits are
    recomputed in the backward pass, as they are without ``mean_reduction``.

    Raises NearfarError for a temperature that is not a positive number, an unknown similarity, and a second derivative
    of a loss in blocks, which has none.
    """
    check_temperature(temperature)

    def on_device(rows: slice, sets: Tensor | RowMask | None) -> Tensor | None:
        return None if sets is None else to_device(sets[rows], anchors.device)

    def sets_of(rows: slice) -> Sets:
        near, among = on_device(rows, positives), on_device(rows, kept)
        if among is not None and isinstance(positives, Tensor) and near is not None:
            among = among.scatter(1, near[:, None], value=True)
        return Sets(near, among, on_device(rows, raised), weight)

    # Autocast would round the products to bfloat16: three digits, and raw dot products reach hundreds.
    with torch.autocast(anchors.device.type, enabled=False):
        if len(row_blocks(len(anchors), len(candidates))) > 1:
            ahead = mean_reduction and torch.is_grad_enabled()
            settings = _Settings(sets_of, temperature, similarity, ahead)
            return _BlockedContrast.apply(anchors, candidates, settings)  # type: ignore[no-untyped-call]
        anchors, candidates = prepare_pair(anchors, candidates, similarity)
        return _losses(anchors @ candidates.T / temperature, sets_of(slice(0, len(anchors))))[0]


def _losses(
    logits: Float[Tensor, "anchors candidates"], sets: Sets
) -> tuple[Float[Tensor, " anchors"], Float[Tensor, "anchors candidates"]]:
    """The losses of a matrix of logits, and the log-softmax over the kept candidates; differentiable by autograd."""
    positives, kept, raised, weight = sets
    if raised is not None:
        logits = logits.scatter_add(1, raised[:, None], logits.new_full((len(logits), 1), weight))
    if kept is not None:
        # Not -inf: a row in which every logit is masked would have a NaN gradient.
        logits = logits.masked_fill(~kept, torch.finfo(logits.dtype).min)
    log_probs = logits.log_softmax(dim=1)
    if positives is None:
        return logits.logsumexp(dim=1), log_probs
    if positives.dtype == torch.bool:
        # torch.where, not a product with the mask: -inf times 0 would be NaN.
        return -torch.where(positives, log_probs, 0.0).sum(dim=1) / positives.sum(dim=1), log_probs
    return -log_probs.gather(1, positives[:, None]).squeeze(1), log_probs


# --- the loss in blocks ---


class _Settings(NamedTuple):
    sets_fn: SetsFn
    temperature: float
    similarity: Similarity
    grad_ahead: bool
    """Compute the gradient of the sum of the losses in the forward pass, while their logits are in memory."""


class _BlockedContrast(torch.autograd.Function):
    """:func:`_losses` in blocks of anchors."""

    @staticmethod
    def forward(
        ctx: Any,
        anchors: Float[Tensor, "anchors dim"],
        candidates: Float[Tensor, "candidates dim"],
        settings: _Settings,
    ) -> Float[Tensor, " anchors"]:
        """Return the losses; saves the inputs and, if computed ahead, a gradient of the size of each."""
        for_anchors, for_candidates, _ = ctx.needs_input_grad
        values, *gradients = _blocked_pass(
            anchors,
            candidates,
            settings,
            needs_grad=(for_anchors and settings.grad_ahead, for_candidates and settings.grad_ahead),
        )
        ctx.save_for_backward(anchors, candidates, *gradients)
        ctx.settings = settings
        return values

    @staticmethod
    def backward(
        ctx: Any, grad_output: Float[Tensor, " anchors"]
    ) -> tuple[Float[Tensor, "anchors dim"] | None, Float[Tensor, "candidates dim"] | None, None]:
        """Scale the gradients computed ahead by grad_output, or recompute the logits if grad_output is not constant."""
        anchors, candidates, grad_anchors, grad_candidates = ctx.saved_tensors
        if torch.is_grad_enabled():  # set by create_graph=True
            raise NearfarError(
                f"create_graph=True: a loss of {len(anchors)} anchors and {len(candidates)} candidates is computed in "
                f"blocks and has no second derivative. Use a smaller batch, of at most {BLOCK} similarities"
            )
        ahead, (for_anchors, for_candidates, _) = ctx.settings.grad_ahead, ctx.needs_input_grad
        with torch.autocast(anchors.device.type, enabled=False):
            if ahead and for_anchors:
                grad_anchors = grad_anchors * grad_output[:, None]
            if ahead and for_candidates and (grad_output == grad_output[0]).all():
                grad_candidates = grad_candidates * grad_output[0]
            elif not ahead or for_candidates:
                needs_grad = for_anchors and not ahead, for_candidates
                _, again, grad_candidates = _blocked_pass(
                    anchors, candidates, ctx.settings, needs_grad=needs_grad, grad_output=grad_output
                )
                grad_anchors = grad_anchors if again is None else again
        grad_anchors = None if grad_anchors is None else grad_anchors.to(anchors.dtype)
        grad_candidates = None if grad_candidates is None else grad_candidates.to(candidates.dtype)
        return grad_anchors, grad_candidates, None


def _blocked_pass(
    anchors: Float[Tensor, "anchors dim"],
    candidates: Float[Tensor, "candidates dim"],
    settings: _Settings,
    *,
    needs_grad: tuple[bool, bool],
    grad_output: Float[Tensor, " anchors"] | None = None,
) -> tuple[Float[Tensor, " anchors"], Float[Tensor, "anchors dim"] | None, Float[Tensor, "candidates dim"] | None]:
    """Return the losses and, if ``needs_grad``, the gradients of their sum, weighted by grad_output if it is given.

    Vectors are scaled here in chunks: autograd would keep several copies of all of them.
    """
    sets_fn, temperature, similarity, _ = settings
    exact = compute_dtype(anchors, candidates)
    others = torch.cat([prepare_vectors(chunk, exact, similarity) for chunk in candidates.split(_SCALE_CHUNK)])
    grad_anchors = torch.empty_like(anchors, dtype=exact) if needs_grad[0] else None
    grad_others = torch.zeros_like(others) if needs_grad[1] else None
    values = []
    for rows in row_blocks(len(anchors), len(candidates)):
        sets = sets_fn(rows)
        leaf, scaled = _scaled(anchors[rows].to(exact), similarity, temperature)
        losses, log_probs = _losses(scaled.detach() @ others.T, sets)
        values.append(losses)
        if not any(needs_grad):
            continue
        grad_logits = log_probs.exp_()  # softmax over the kept candidates, minus 1/|P| at each positive
        if sets.positives is not None and sets.positives.dtype == torch.bool:
            grad_logits -= sets.positives / sets.positives.sum(dim=1, keepdim=True).to(exact)
        elif sets.positives is not None:
            grad_logits.scatter_add_(1, sets.positives[:, None], grad_logits.new_full((len(leaf), 1), -1.0))
        if grad_output is not None:
            grad_logits *= grad_output[rows, None]
        if grad_anchors is not None:
            (grad_anchors[rows],) = torch.autograd.grad(scaled, leaf, grad_logits @ others)
        if grad_others is not None:
            grad_others.addmm_(grad_logits.T, scaled.detach())
    if grad_others is not None:
        for chunk, grad_chunk in zip(candidates.split(_SCALE_CHUNK), grad_others.split(_SCALE_CHUNK), strict=True):
            leaf, scaled = _scaled(chunk.to(exact), similarity, 1.0)
            grad_chunk.copy_(*torch.autograd.grad(scaled, leaf, grad_chunk))
    return torch.cat(values), grad_anchors, grad_others


def _scaled(
    vectors: Float[Tensor, "vectors dim"], similarity: Similarity, temperature: float
) -> tuple[Float[Tensor, "vectors dim"], Float[Tensor, "vectors dim"]]:
    """Return the leaf tensor for the gradient, and the vectors as they are compared."""
    with torch.enable_grad():
        leaf = vectors.detach().requires_grad_()
        return leaf, prepare_vectors(leaf, vectors.dtype, similarity) / temperature
