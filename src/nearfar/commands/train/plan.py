"""The dry run of a training: all checks of a run, its counts, and batches in words."""

from dataclasses import dataclass

from rich.console import Console

from nearfar.commands.train import inputs
from nearfar.commands.train.dev import finds
from nearfar.commands.train.guard import open_guard
from nearfar.commands.train.prepare import prepare
from nearfar.config.training import TrainConfig
from nearfar.methods import Method
from nearfar.methods.mixture import describe_parts
from nearfar.runs.folder import check_folder
from nearfar.runs.run import count_steps
from nearfar.training.callbacks import check_installed
from nearfar.training.gradients import split_micro_batches


@dataclass(frozen=True)
class Plan:
    """What a run would do: its counts, and batches in words."""

    facts: list[str]
    """Sources and number of the rows, and what was left out or truncated."""
    sentences: int
    """Number of distinct sentences."""
    tokens: int
    """Number of tokens in the distinct sentences."""
    steps: int
    """Number of optimiser steps."""
    parameters: int
    """Number of parameters of the encoder."""
    trained: int
    """Number of trained parameters, heads included."""
    memory_gib: float
    """Estimate for weights, gradients, AdamW's moments, averages, and the activations of the largest batch below."""
    batches: list[list[str]]
    """The first three batches in words: anchors, positives, negatives."""
    dev: str
    """The dev set and its size."""


def plan(
    config: TrainConfig, *, resume: bool = False, anchors: int | None = None, console: Console | None = None
) -> Plan:
    """The plan of a dry run: make all checks of a run, count, and describe three batches.

    Writes nothing. ``resume`` is as for the run. ``anchors`` is the number of anchors shown of a batch, by default all.
    ``console`` shows a progress bar while many texts are tokenized.

    Raises:
        NearfarError: any error that would stop the run before its first step.
    """
    check_installed(config.track)
    sets = inputs.resolve_sets(config)
    check_folder(config, resume=resume)
    sets, dev = inputs.load_inputs(sets, in_folds=True)
    guard = open_guard(config)
    run = prepare(config, sets, console=console)
    first = [parts for _, parts in zip(range(3), run.mixture.epoch(0), strict=False)]
    trained = [p for module in (run.encoder, *run.mixture.heads) for p in module.parameters() if p.requires_grad]
    shape = run.encoder.backbone.config
    # Activations that autograd keeps of a layer, for each token: about 10 widths around attention and norms, and 3
    # widths of the feed-forward layer.
    width, inner = shape.hidden_size, getattr(shape, "intermediate_size", 4 * shape.hidden_size)
    of_layer = 10 * width + 3 * inner
    kept = 4 * (
        shape.num_hidden_layers * width + of_layer
        if config.gradient_checkpointing
        else shape.num_hidden_layers * of_layer
    )
    tokens = max(_tokens(method, batch, config) for parts in first for method, batch, _ in parts)
    numbers, trained_numbers = (sum(p.numel() for p in group) for group in (run.encoder.parameters(), trained))
    # Bytes per trained number: weights' gradient and two moments; each average, and a copy while it is evaluated.
    state = 12 + 8 * ((config.ema is not None) + (config.start_weight > 0))
    return Plan(
        facts=[
            *run.facts,
            *dev.facts,
            *([finds(dev.held_out)] if dev.held_out is not None else []),
            *([guard.describe()] if guard else []),
        ],
        sentences=len(run.texts.tokens),
        tokens=len(run.texts.tokens.flat),
        steps=count_steps(config, run.mixture),
        parameters=numbers,
        trained=trained_numbers,
        memory_gib=(4 * numbers + state * trained_numbers + tokens * kept) / 2**30,
        batches=[describe_parts(parts, anchors=anchors) for parts in first],
        dev=f"dev set: {dev.name}: {dev.count}",
    )


def _tokens(method: Method, batch: object, config: TrainConfig) -> int:
    """Maximum number of tokens that the encoder reads at once for a batch."""
    assert method.count_tokens is not None
    parts = split_micro_batches(method, method.extract_items(batch), config.micro_batch, config.micro_batch_tokens)
    return max(sum(method.count_tokens(part)) for part in parts)
