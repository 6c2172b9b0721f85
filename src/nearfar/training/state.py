"""Named tensors of a run's state, as a checkpoint holds them: weights, their average, and the optimiser's moments."""

import torch
from torch import Tensor, nn

from nearfar.training.average import WeightAverage


def weights_of(modules: dict[str, nn.Module]) -> dict[str, Tensor]:
    """All weights; a tensor shared by several names (tied weights) only under the first name."""
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for prefix, module in modules.items():
        for name, tensor in module.state_dict().items():
            if tensor.data_ptr() not in seen or tensor.numel() == 0:
                tensors[f"{prefix}.{name}"] = tensor.contiguous()
                seen.add(tensor.data_ptr())
    return tensors


class MismatchError(Exception):
    """The tensors of a file do not match those of the run."""


def load_weights(modules: dict[str, nn.Module], tensors: dict[str, Tensor]) -> None:
    """Restore all weights from the tensors of :func:`weights_of`.

    Raises:
        MismatchError: they are not those of the modules, or not finite.
    """
    expected = weights_of(modules)
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in expected or name not in tensors or expected[name].shape != tensors[name].shape:
            raise MismatchError(f"{name} is missing, has another shape, or is not a weight of this run")
        if not torch.isfinite(tensors[name]).all():
            raise MismatchError(f"{name} holds NaN or infinity")
    for prefix, module in modules.items():
        state = module.state_dict()
        with torch.no_grad():
            for name, tensor in state.items():
                if f"{prefix}.{name}" in tensors:
                    tensor.copy_(tensors[f"{prefix}.{name}"])


def load_average(average: WeightAverage, tensors: dict[str, Tensor]) -> None:
    """Restore the average from its ``tensors``.

    Raises:
        MismatchError: they are not those of the averaged parameters.
    """
    for name in sorted(average.tensors.keys() | tensors.keys()):
        ours, theirs = average.tensors.get(name), tensors.get(name)
        if ours is None or theirs is None or (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            raise MismatchError(f"{name} is missing, has another shape or dtype, or is not averaged in this run")
        ours.copy_(theirs)


def _named_parameters(modules: dict[str, nn.Module]) -> dict[str, nn.Parameter]:
    return {f"{prefix}.{name}": p for prefix, module in modules.items() for name, p in module.named_parameters()}


def optimiser_state(modules: dict[str, nn.Module], optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state of each parameter: "name:key" -> tensor."""
    return {
        f"{name}:{key}": value.contiguous()
        for name, parameter in _named_parameters(modules).items()
        for key, value in optimiser.state.get(parameter, {}).items()
    }


def load_optimiser_state(
    modules: dict[str, nn.Module], optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    """Restore the optimiser's state from the tensors of :func:`optimiser_state`.

    Raises:
        MismatchError: they are not those of the modules' parameters.
    """
    parameters = _named_parameters(modules)
    for name, tensor in tensors.items():
        owner, _, key = name.rpartition(":")
        if owner not in parameters or (tensor.ndim and tensor.shape != parameters[owner].shape):
            raise MismatchError(f"{name} has another shape, or belongs to no weight of this run")
        # Copy: otherwise the file stays memory-mapped, and on Windows the next checkpoint could not replace it.
        optimiser.state[parameters[owner]][key] = tensor.to(parameters[owner].device, copy=True)
