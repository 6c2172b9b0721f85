"""The state of a run, as named tensors: weights, their average, and the optimiser's moments."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nearfar.training.average import WeightAverage
from nearfar.training.processes import Processes


class MismatchError(Exception):
    """The tensors of a file do not match those of the run."""


@dataclass(frozen=True)
class TrainingState:
    """What each step of a run changes, and what a checkpoint holds."""

    modules: dict[str, nn.Module]
    """The trained modules, by name."""
    optimiser: torch.optim.AdamW
    average: WeightAverage | None = None

    def weights(self) -> dict[str, Tensor]:
        """All weights; a tensor shared by several names (tied weights) only under the first name."""
        tensors: dict[str, Tensor] = {}
        seen: set[int] = set()
        for prefix, module in self.modules.items():
            for name, tensor in module.state_dict().items():
                if tensor.data_ptr() not in seen or tensor.numel() == 0:
                    tensors[f"{prefix}.{name}"] = tensor.contiguous()
                    seen.add(tensor.data_ptr())
        return tensors

    def load_weights(self, tensors: dict[str, Tensor]) -> None:
        """Restore all weights from the tensors of :meth:`weights`.

        Raises:
            MismatchError: they are not those of the modules, or not finite.
        """
        expected = self.weights()
        for name in sorted(expected.keys() | tensors.keys()):
            if name not in expected or name not in tensors or expected[name].shape != tensors[name].shape:
                raise MismatchError(f"{name} is missing, has another shape, or is not a weight of this run")
            if not torch.isfinite(tensors[name]).all():
                raise MismatchError(f"{name} holds NaN or infinity")
        for prefix, module in self.modules.items():
            state = module.state_dict()
            with torch.no_grad():
                for name, tensor in state.items():
                    if f"{prefix}.{name}" in tensors:
                        tensor.copy_(tensors[f"{prefix}.{name}"])

    def averages(self) -> dict[str, Tensor]:
        """The average of each averaged parameter; empty without an average."""
        return {} if self.average is None else self.average.tensors

    def load_averages(self, tensors: dict[str, Tensor]) -> None:
        """Restore the average from the tensors of :meth:`averages`.

        Raises:
            MismatchError: they are not those of the averaged parameters.
        """
        averages = self.averages()
        for name in sorted(averages.keys() | tensors.keys()):
            ours, theirs = averages.get(name), tensors.get(name)
            if ours is None or theirs is None or (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
                raise MismatchError(f"{name} is missing, has another shape or dtype, or is not averaged in this run")
            ours.copy_(theirs)

    def moments(self) -> dict[str, Tensor]:
        """The optimiser's state of each parameter: "name:key" -> tensor."""
        return {
            f"{name}:{key}": value.contiguous()
            for name, parameter in self._parameters().items()
            for key, value in self.optimiser.state.get(parameter, {}).items()
        }

    def load_moments(self, tensors: dict[str, Tensor]) -> None:
        """Restore the optimiser's state from the tensors of :meth:`moments`.

        Raises:
            MismatchError: they are not those of the modules' parameters.
        """
        parameters = self._parameters()
        for name, tensor in tensors.items():
            owner, _, key = name.rpartition(":")
            if owner not in parameters or (tensor.ndim and tensor.shape != parameters[owner].shape):
                raise MismatchError(f"{name} has another shape, or belongs to no weight of this run")
            # Copy: otherwise the file stays memory-mapped, and on Windows the next checkpoint could not replace it.
            self.optimiser.state[parameters[owner]][key] = tensor.to(parameters[owner].device, copy=True)

    def send_from_first(self, processes: Processes) -> None:
        """Give all processes the state of the first one."""
        if processes.size == 1:
            return
        device = next(iter(self._parameters().values())).device
        weights, moments, averages = (
            processes.broadcast_tensors(tensors, device)
            for tensors in (self.weights(), self.moments(), self.averages())
        )
        if not processes.is_main:
            self.load_weights(weights)
            self.load_moments(moments)
            self.load_averages(averages)

    def _parameters(self) -> dict[str, nn.Parameter]:
        return {
            f"{prefix}.{name}": parameter
            for prefix, module in self.modules.items()
            for name, parameter in module.named_parameters()
        }
