"""The plan of a dry run: every check of a run, its counts, and three batches in words. Nothing is written."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.commands.train.command import check_folder
from nearfar.commands.train.inputs import load_inputs
from nearfar.commands.train.prepare import prepare
from nearfar.config import TrainConfig
from nearfar.runs.precision import recorded_run_precision

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.methods import Method


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
    config: TrainConfig, *, resume: bool = False, anchors: int | None = None, console: "Console | None" = None
) -> Plan:
    """The plan of a dry run: make all checks of a run, count, and describe three batches.

    Writes nothing. ``resume`` is as for the run. ``anchors`` is the number of anchors shown of a batch, by default all.
    ``console`` shows a progress bar while many texts are tokenized.

    Raises:
        NearfarError: any error that would stop the run before its first step.
    """
    from nearfar.methods.mixture import describe_parts
    from nearfar.training.trackers import check_installed

    check_installed(config.track)
    if check_folder(config, resume=resume) == "unfinished":
        recorded_run_precision(Path(config.output), config.device)
    inputs = load_inputs(config)
    run = prepare(config, inputs.rows, console=console)
    first = [parts for _, parts in zip(range(3), run.mixture.epoch(0), strict=False)]
    parameters = list(run.encoder.parameters())
    trained = [p for module in (run.encoder, *run.mixture.heads) for p in module.parameters() if p.requires_grad]
    shape = run.encoder.backbone.config
    # Activations that autograd keeps of a layer, for each token: about 10 widths around attention and norms, and 3
    # widths of the feed-forward layer.
    width, inner = shape.hidden_size, getattr(shape, "intermediate_size", 4 * shape.hidden_size)
    kept = shape.num_hidden_layers * (10 * width + 3 * inner) * 4
    tokens = max(_tokens(method, batch, config) for parts in first for method, batch, _ in parts)
    numbers = sum(p.numel() for p in parameters)
    # Bytes per trained number: weights' gradient and two moments; each average, and a copy while it is evaluated.
    state = 12 + 8 * ((config.ema is not None) + (config.start_weight > 0))
    return Plan(
        facts=[*run.facts, *inputs.facts],
        sentences=len(run.texts.tokens),
        tokens=len(run.texts.tokens.flat),
        steps=run.total_steps,
        parameters=numbers,
        trained=sum(p.numel() for p in trained),
        memory_gib=(4 * numbers + state * sum(p.numel() for p in trained) + tokens * kept) / 2**30,
        batches=[describe_parts(parts, anchors=anchors) for parts in first],
        dev=f"dev set: {inputs.dev.name}: {inputs.dev.count}",
    )


def _tokens(method: "Method", batch: object, config: TrainConfig) -> int:
    """Maximum number of tokens that the encoder reads at once for a batch."""
    from nearfar.training.gradients import split_micro_batches

    assert method.count_tokens is not None
    micro_batches = split_micro_batches(
        method, method.extract_items(batch), config.micro_batch, config.micro_batch_tokens
    )
    return max(sum(method.count_tokens(micro_batch)) for micro_batch in micro_batches)
