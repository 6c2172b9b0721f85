"""The contrastive loss that most objectives share, and how that of a large batch is cut into blocks of its rows.

An objective says what its anchors are compared with by masks, which it writes as if they were matrices
(:class:`RowMask`); here the loss is computed from them at once if the matrix of logits is small, else block by block,
without ever storing the matrix.
"""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from nearfar.objectives._similarity import Similarity, check_temperature, prepare_pair
from nearfar.runtime.transfer import to_device

BLOCK = 2**22
"""Maximum number of logits in memory, 16 MiB in float32. A matrix up to this size, 2,048 x 2,048, is not split.

Below this size, blocks would save only a few dozen MiB. Much smaller blocks are slower, because each one adds to the
gradients of all candidates; larger blocks are not faster.
"""


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
        rows_fn = partial(checkpoint, rows_fn, use_reentrant=False, preserve_rng_state=False)
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
) -> Float[Tensor, " anchors"]:
    """Return l_i = log sum_{k in C} exp(x_ik) - 1/|P| sum_{j in P} x_ij; without positives only the first term.

    The logit x_ik is s(a_i, c_k) / t, plus ``weight`` in the column ``raised`` of each anchor. P is ``positives``, the
    column of each anchor's single positive or a mask of several; C is ``kept``, by default all candidates. A single
    positive is always kept, several must be among ``kept``. All of these may be on the CPU for vectors on a GPU.
    Computed in float32 or better, also under autocast.

    If there are more logits than :data:`BLOCK`, they are computed in blocks of anchors, and again in the backward pass,
    not kept: memory is linear, not quadratic, in the number of vectors.

    Raises NearfarError for a temperature that is not a positive number, and an unknown similarity.
    """
    check_temperature(temperature)
    # Autocast would round the products to bfloat16: three digits, and raw dot products reach hundreds.
    with torch.autocast(anchors.device.type, enabled=False):
        anchors, candidates = prepare_pair(anchors, candidates, similarity)

    def of_rows(rows: slice, sets: Tensor | RowMask | None) -> Tensor | None:
        return None if sets is None else to_device(sets[rows], anchors.device)

    def losses(rows: slice) -> Float[Tensor, " anchors"]:
        near, among, columns = (of_rows(rows, sets) for sets in (positives, kept, raised))
        with torch.autocast(anchors.device.type, enabled=False):
            logits = anchors[rows] @ candidates.T / temperature
            if columns is not None:
                logits = logits.scatter_add(1, columns[:, None], logits.new_full((len(logits), 1), weight))
            single = near is not None and near.dtype != torch.bool
            if among is not None:
                among = among.scatter(1, near[:, None], value=True) if near is not None and single else among
                # Not -inf: a row in which every logit is masked would have a NaN gradient.
                logits = logits.masked_fill(~among, torch.finfo(logits.dtype).min)
            if near is None:
                return logits.logsumexp(dim=1)
            log_probs = logits.log_softmax(dim=1)
            if single:
                return -log_probs.gather(1, near[:, None]).squeeze(1)
            # torch.where, not a product with the mask: -inf times 0 would be NaN.
            return -torch.where(near, log_probs, 0.0).sum(dim=1) / near.sum(dim=1)

    return by_rows(losses, len(anchors), len(candidates), recompute=True)
