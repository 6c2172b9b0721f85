"""Loads the state of a run in the first process, and sends it to the others, which need not see the run folder."""

import torch
from torch import nn

from nearfar.training.average import WeightAverage
from nearfar.training.checkpoint import Checkpoints, Progress
from nearfar.training.processes import Processes
from nearfar.training.state import load_average, load_optimiser_state, load_weights, optimiser_state, weights_of


def load_state(
    checkpoints: Checkpoints,
    modules: dict[str, nn.Module],
    optimiser: torch.optim.Optimizer,
    average: WeightAverage | None,
    *,
    processes: Processes,
) -> Progress:
    """The progress of the run. Afterwards all processes have the weights and moments of the first process.

    These are those of the checkpoint, or the initial ones if there is none.

    Raises:
        NearfarError: as :meth:`Checkpoints.load`, in all processes.
    """
    progress = processes.broadcast_from_first(
        lambda: checkpoints.load(modules, optimiser, average, processes=processes.size)
    )
    if processes.size == 1:
        return progress
    device = next(parameter.device for module in modules.values() for parameter in module.parameters())
    weights = processes.broadcast_tensors(weights_of(modules), device)
    moments = processes.broadcast_tensors(optimiser_state(modules, optimiser), device)
    averages = {} if average is None else processes.broadcast_tensors(average.tensors, device)
    if not processes.is_main:
        load_weights(modules, weights)
        load_optimiser_state(modules, optimiser, moments)
        if average is not None:
            load_average(average, averages)
    return progress
