"""Objectives in blocks of anchors: equal to the full matrix with every option, with memory linear in the batch size."""

from functools import partial

import pytest
import torch

from nearfar.objectives import (
    DirectionMasks,
    RowMask,
    _contrast,
    below_positive,
    distinct_rows,
    info_nce,
    info_nce_directions,
    nt_xent,
    premise_scl,
    self_guided,
    supcon,
)
from nearfar.types import NearfarError
from tests.objectives.checks import LargestTensor, by_rows, some_mask, vectors

COUNT, DIM = 11, 5
SQUARE, WIDE = some_mask(COUNT, COUNT), some_mask(COUNT, 2 * COUNT, seed=1)
LABELS = torch.tensor([0, 1, 0, 2, 1, 0, 3, 3, 0, 1, 4])  # labels 2 and 4 occur once
PREMISES, NLI = torch.tensor([[7, 7, 7, 8, 8, 8, 9, 9, 9, 6, 6], [0, 0, 2, 0, 0, 1, 0, 0, 0, 2, 1]])
HYPOTHESES = torch.tensor([1, 2, 3, 2, 8, 4, 5, 7, 2, 1, 5])  # repeats texts, and texts of premises


MASKS = DirectionMasks(by_rows(WIDE), by_rows(SQUARE), by_rows(SQUARE.T), by_rows(~WIDE))


def below(a, p, *n):
    return below_positive(a, p, torch.cat([p, *n]), margin=0.1)


def of_premises(a, p, t, **settings):
    return premise_scl(a, p, PREMISES, NLI, temperature=t, similarity="cosine", **settings)


# Arguments of each: three matrices and a temperature.
OPTIONS = {
    "info_nce": lambda a, p, n, t: info_nce(a, p, temperature=t),
    "dot": lambda a, p, n, t: info_nce(a, p, n, temperature=t, similarity="dot"),
    "masked": lambda a, p, n, t: info_nce(a, p, temperature=t, mask=SQUARE),
    "distinct": lambda a, p, n, t: info_nce(a, p, temperature=t, mask=distinct_rows(LABELS)),
    "below positive": lambda a, p, n, t: info_nce(a, p, n, temperature=t, mask=below(a, p, n)),
    "negatives": lambda a, p, n, t: info_nce(a, p, n, temperature=t),
    "weight": lambda a, p, n, t: info_nce(a, p, n, temperature=t, hard_negative_weight=1.5),
    "weight, masked": lambda a, p, n, t: info_nce(a, p, n, temperature=t, hard_negative_weight=-0.7, mask=WIDE),
    "own positive": lambda a, p, n, t: info_nce(a, a, n, temperature=t),
    "doc_to_query": lambda a, p, n, t: info_nce_directions(a, p, n, directions="doc_to_query", temperature=t),
    "both": lambda a, p, n, t: info_nce_directions(a, p, n, directions="both", temperature=t),
    "all": lambda a, p, n, t: info_nce_directions(a, p, n, directions="all", temperature=t),
    "all, weight, masked": lambda a, p, n, t: info_nce_directions(
        a, p, n, directions="all", temperature=t, hard_negative_weight=0.7, masks=MASKS
    ),
    "nt_xent, masked": lambda a, p, n, t: nt_xent(a, p, temperature=t, mask=SQUARE),
    "supcon": lambda a, p, n, t: supcon(a, LABELS, temperature=t),
    "premise_scl, texts": lambda a, p, n, t: of_premises(a, p, t, hypothesis_ids=HYPOTHESES),
    "premise_scl, margin": lambda a, p, n, t: of_premises(a, p, t, false_negative_margin=0.1),
    "premise_scl, capped": lambda a, p, n, t: of_premises(
        a, p, t, max_negatives=3, generator=torch.Generator().manual_seed(1)
    ),
    "opt1": lambda a, p, n, t: self_guided(a, p, temperature=t, variant="opt1", mask=SQUARE),
    "opt3, masked": lambda a, p, n, t: self_guided(
        a, torch.stack([p, n, p * n], 1), temperature=t, variant="opt3", mask=by_rows(SQUARE)
    ),
}
options = pytest.mark.parametrize("name", OPTIONS)


@pytest.fixture
def blocks(monkeypatch):
    """Return a function that sets the number of logits per block, one that does not divide the batch."""
    return lambda size: monkeypatch.setattr(_contrast, "BLOCK", size)


def dense_and_streamed(blocks, loss, *inputs, block=70, mean=False):
    """Return losses and gradients of the full matrix and of blocks; asserts that the two used different code."""
    found = []
    for size in (2**40, block):
        blocks(size)
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        value = loss(*leaves)
        assert ("BlockedContrast" in graph(value)) == (size == block)
        # Unequal weights detect losses in another order; the gradient of a mean uses other code.
        (value.mean() if mean else (value * (1 + torch.arange(len(value)))).sum()).backward()
        found.append((value.detach(), [leaf.grad for leaf in leaves if leaf.grad is not None]))
    assert len(found[0][1]) == len(found[1][1]) > 0
    return found


def graph(value):
    """Return the names of the autograd nodes between a value and its inputs, as one string."""
    seen, queue = set(), [value.grad_fn]
    while queue:
        node = queue.pop()
        if node is not None and node not in seen:
            seen.add(node)
            queue += [following for following, _ in node.next_functions]
    return " ".join(node.name() for node in seen)


@pytest.mark.long
@options
def test_blocks_match_the_full_matrix(name, blocks):
    for temperature, block, mean in ((0.05, 70, True), (1.0, 1, False), (50.0, 70, False)):
        loss = partial(OPTIONS[name], t=temperature)
        full, streamed = dense_and_streamed(blocks, loss, *vectors(3, COUNT, DIM), block=block, mean=mean)
        torch.testing.assert_close(streamed[0], full[0], rtol=1e-12, atol=1e-13)
        for ours, plain in zip(streamed[1], full[1], strict=True):
            assert plain.norm() > 1e-9
            torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-11 * plain.norm().item())


@pytest.mark.long
@options
def test_extreme_inputs_are_finite_and_as_exact_as_the_full_matrix(name, blocks):
    for temperature, length in ((0.05, 1e-15), (1e-4, 1.0), (0.05, 1e15)):
        scale = 1.0 if name == "dot" else length
        x = scale * vectors(3, COUNT, DIM).float()
        x[0, 0], x[1, 1], x[2, 2] = 0, 0, 0  # zero vectors
        x[1, 3], x[1, 4], x[0, 5] = x[0, 3], -x[0, 4], x[0, 6]
        full, streamed = dense_and_streamed(blocks, partial(OPTIONS[name], t=temperature), *x, mean=True)
        # A similarity has seven digits, and a logit is up to 1e4 times as large.
        torch.testing.assert_close(streamed[0], full[0], rtol=1e-6, atol=1e-6 / temperature)
        for ours, plain in zip(streamed[1], full[1], strict=True):
            assert ours.isfinite().all()
            # Where each anchor is its own positive, the gradient is zero but for rounding, which differs by processor.
            rounding = 1e-7 / (temperature * scale) if name == "own positive" else 0.0
            assert (ours - plain).norm() <= max(1e-6 / temperature, 1e-5) * plain.norm() + rounding


@pytest.mark.parametrize(
    "name", ["weight, masked", "nt_xent, masked", "supcon", "premise_scl, margin", "opt3, masked", "all"]
)
@pytest.mark.parametrize(("dtype", "mean"), [(torch.float16, False), (torch.bfloat16, True)])
def test_half_precision_is_computed_in_float32(name, dtype, mean, blocks):
    loss = OPTIONS[name]

    def within(*x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            return loss(*x, 0.05)

    x = vectors(3, COUNT, DIM).to(dtype)
    full, streamed = dense_and_streamed(blocks, within, *x, mean=mean)
    assert streamed[0].dtype == torch.float32
    torch.testing.assert_close(streamed[0], full[0], rtol=1e-5, atol=1e-5)
    for ours, plain in zip(streamed[1], full[1], strict=True):
        assert ours.dtype == plain.dtype == dtype
        torch.testing.assert_close(ours, plain, rtol=2e-2, atol=2e-2 * plain.abs().max().item())


@pytest.mark.parametrize("name", ["weight, masked", "all, weight, masked", "supcon"])
def test_gradients_match_finite_differences(name, blocks):
    blocks(70)
    x = [matrix.requires_grad_() for matrix in vectors(3, COUNT, DIM).unbind()]
    assert torch.autograd.gradcheck(lambda *x: OPTIONS[name](*x, 0.5), x, fast_mode=True)


@pytest.mark.parametrize(("weighting", "times"), [(torch.mean, 1), (lambda value: value[1:].sum(), 2)])
def test_the_gradient_of_a_mean_is_precomputed(weighting, times, blocks):
    blocks(70)
    requested = []

    def rows_of(rows):
        requested.extend(range(COUNT)[rows])
        return SQUARE[rows]

    mask = RowMask(rows_of, (COUNT, COUNT))
    anchors, positives, _ = (x.requires_grad_() for x in vectors(3, COUNT, DIM).unbind())
    weighting(info_nce(anchors, positives, mask=mask)).backward()
    assert requested == list(range(COUNT)) * times
    with torch.no_grad():
        info_nce(anchors, positives, mask=mask)
    assert requested == list(range(COUNT)) * (times + 1)


@pytest.mark.long
def test_a_second_derivative_raises(blocks):
    x = vectors(COUNT, DIM).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: supcon(x, LABELS, temperature=0.5), x)  # the full matrix has one
    blocks(70)
    value = supcon(x, LABELS, temperature=0.5).sum()
    with pytest.raises(
        NearfarError,
        match=r"create_graph=True: a loss of 9 anchors and 11 candidates .* no second derivative.* at most 70",
    ):
        torch.autograd.grad(value, x, create_graph=True)


def memory(loss, count):
    """Return the elements of the largest tensor in forward and backward, and of all tensors saved in between."""
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage  # keeps a reference, so that its address is not reused
        return tensor

    x = [matrix.requires_grad_() for matrix in vectors(3, count, 4).float()]
    with LargestTensor() as largest:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            value = loss(*x).sum()
        value.backward()
    assert x[0].grad.norm() > 1e-6
    return largest.elements, sum(storage.nbytes() for storage in kept.values()) // 4


LARGE = {
    "info_nce": lambda a, p, n: info_nce(a, p, n, hard_negative_weight=0.5, mask=twice(distinct_rows(ids(a)))),
    "all": lambda a, p, n: info_nce_directions(a, p, n, directions="all"),
    "supcon": lambda a, p, n: supcon(a, ids(a), temperature=0.1),
    "opt3": lambda a, p, n: self_guided(a, torch.stack([p, n], 1), temperature=0.1, variant="opt3"),
}


def ids(x):
    return torch.arange(len(x)) // 4


def twice(mask):
    return RowMask(lambda rows: mask[rows].repeat(1, 2), (mask.shape[0], 2 * mask.shape[1]))


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ("info_nce", "opt3") else pytest.mark.nightly) for name in LARGE]
)
def test_memory_is_linear_in_the_batch_size(name, blocks):
    block, counts = 2**10, (128, 256)
    blocks(block)
    (largest, kept), (larger, twice_kept) = (memory(LARGE[name], count) for count in counts)
    assert max(largest, larger) <= 2 * block < counts[0] ** 2 / 4
    assert twice_kept <= 2.1 * kept
    blocks(2**40)
    largest, kept = memory(LARGE[name], counts[0])
    assert largest >= counts[0] ** 2  # the full matrix would be detected
    assert kept >= counts[0] ** 2
