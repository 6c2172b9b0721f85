"""Helpers of the objectives' tests: random vectors and masks, comparison with reference loops, tensor sizes."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nearfar.objectives import RowMask


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation creates."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        for tensor in results if isinstance(results, (tuple, list)) else [results]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return results


def vectors(*shape, seed=0):
    """Return float64 samples of the standard normal distribution."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def by_rows(mask):
    """A mask as a RowMask, whose rows are looked up when they are needed."""
    return None if mask is None else RowMask(lambda rows: mask[rows], tuple(mask.shape))


def some_mask(rows, columns, seed=0):
    """Return a random mask, True with probability one half, also on the diagonal."""
    return torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed)) < 0.5


def assert_same(objective, loops, *inputs, trivial=False):
    """Assert equal values and equal gradients; the gradients are non-zero unless ``trivial``."""
    ours = [tensor.clone().requires_grad_() for tensor in inputs]
    theirs = [tensor.clone().requires_grad_() for tensor in inputs]
    value, expected = objective(*ours), loops(*theirs)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
    # Unequal weights, so that losses in another order would have other gradients.
    weights = 1 + torch.arange(expected.numel(), dtype=torch.float64).view(expected.shape)
    (value * weights).sum().backward()
    (expected * weights).sum().backward()
    for one, other in zip(ours, theirs, strict=True):
        assert (other.grad.norm() > 1e-6) != trivial
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-8, atol=1e-9)
