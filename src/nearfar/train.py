"""One training run, put together: config -> rows -> encoder -> method -> loop -> run folder.

What ``nearfar train`` calls, and a notebook can call too. A run folder holds

- ``config.toml``: every setting, resolved;
- ``metrics.jsonl``: loss terms, learning rate and speed of each step, and the score of each evaluation;
- ``checkpoint/`` and ``best.safetensors`` while it runs;
- ``model/``, a sentence-transformers folder, and ``run.json``, what came out and on what machine, once it is done.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.config import AugmentConfig, Cap, SbertConfig, SclConfig, TrainConfig, build, flag, load_toml
from nearfar.config import dump_toml as to_toml
from nearfar.types import LABEL_NAMES, NearfarError, NliRow, ScoredPair

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.data.batching import NliBatches
    from nearfar.data.nli import NliData
    from nearfar.encoder.encoder import Encoder
    from nearfar.methods import Embed, Method


@dataclass(frozen=True)
class Plan:
    """What a run would do, counted and in words, without doing it."""

    notes: list[str]
    """Where the rows come from, and what was left out or cut."""
    labels: dict[str, int]
    premises: int
    sentences: int
    """Distinct ones."""
    tokens: int
    """Of the distinct sentences."""
    steps: int
    parameters: int
    memory_gib: float
    """About: weights, gradients, AdamW's moments, and the activations of the largest of the batches below."""
    batches: list[list[str]]
    """The first three batches: anchors, positives, negatives."""


@dataclass(frozen=True)
class Trained:
    """What came out of a run."""

    model: Path
    steps: int
    start_score: float
    """Spearman on the dev pairs before training."""
    best_score: float
    best_step: int


@dataclass(frozen=True)
class _Run:
    """Everything that a run is made of, ready to go."""

    data: "NliData"
    encoder: "Encoder"
    method: "Method"
    token_ids: dict[str, list[int]]
    total_steps: int
    notes: list[str]


def plan(config: TrainConfig) -> Plan:
    """Count rows, labels, tokens, steps and memory, and show three batches in words; writes nothing.

    Raises:
        NearfarError: whatever would stop the run before its first step.
    """
    run = _prepare(config)
    first = [batch for _, batch in zip(range(3), run.method.batches.epoch(0), strict=False)]
    batch_tokens = max(sum(len(run.token_ids[text]) for text in batch.sentences) for batch in first)
    parameters = sum(p.numel() for p in run.encoder.parameters())
    shape = run.encoder.backbone.config
    # What autograd keeps of a layer for each token: about 10 widths around attention and norms, 3 of the feed-forward.
    kept = shape.num_hidden_layers * (10 * shape.hidden_size + 3 * shape.intermediate_size) * 4
    return Plan(
        notes=run.notes,
        labels=dict(run.data.counts),
        premises=len({row.premise for row in run.data.rows}),
        sentences=len(run.token_ids),
        tokens=sum(len(ids) for ids in run.token_ids.values()),
        steps=run.total_steps,
        parameters=parameters,
        memory_gib=(16 * parameters + batch_tokens * kept) / 2**30,
        batches=[run.method.describe(batch) for batch in first],
    )


def train(config: TrainConfig, *, resume: bool = False, console: "Console | None" = None) -> Trained:
    """Train, and leave the model in ``config.output``/model.

    ``resume`` goes on with a run that was stopped or killed, which ends with the weights it would have had, to the bit,
    on the same machine with the same number of threads.

    Raises:
        NearfarError: bad data, model or settings; a run folder that is in the way; a loss that is not finite; a disk
            that refuses.
        nearfar.training.loop.Interrupted: after Ctrl-C, with everything saved.
    """
    folder = _check_folder(config, resume=resume)

    from accelerate import Accelerator
    from rich.console import Console

    from nearfar.data.sts import load_pairs
    from nearfar.disk import disk_errors, write_text
    from nearfar.evaluation.results import provenance
    from nearfar.training.checkpoint import Checkpoints
    from nearfar.training.display import Display, MetricsFile
    from nearfar.training.loop import run as run_loop
    from nearfar.training.optimiser import adamw

    console = console or Console(quiet=True)
    accelerator = Accelerator(mixed_precision="no")  # bf16 is the encoder's alone: objectives stay in float32
    if accelerator.num_processes > 1:
        raise NearfarError("nearfar trains in one process so far; start it without torchrun or accelerate launch.")
    pairs = load_pairs(config.evaluate_on)
    run = _prepare(config)
    for note in run.notes:
        console.print(note, highlight=False)
    score = _dev_score(run.encoder, pairs, config.evaluate_on)

    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "config.toml", to_toml(config))
    modules = {"encoder": run.encoder} | ({"head": run.method.head} if run.method.head else {})
    optimiser = adamw(
        run.encoder,
        run.method.head,
        learning_rate=config.learning_rate,
        head_learning_rate=config.head_learning_rate,
        weight_decay=config.weight_decay,
    )
    checkpoints = Checkpoints(folder)
    progress = checkpoints.load(modules, optimiser)
    display = Display(console, total_steps=run.total_steps, start=progress.step)
    with display:
        run_loop(
            run.method.batches,
            run.method.loss_of,
            modules=modules,
            optimiser=optimiser,
            accelerator=accelerator,
            checkpoints=checkpoints,
            watchers=(display, MetricsFile(folder / "metrics.jsonl", resume_at=progress.step)),
            score=score,
            describe_rows=lambda rows: _describe_rows(run.data.rows, rows),
            progress=progress,
            epochs=config.epochs,
            total_steps=run.total_steps,
            accumulate=config.accumulate,
            warmup=config.warmup,
            schedule=config.schedule,
            max_grad_norm=config.max_grad_norm,
            evaluate_every=config.evaluate_every,
            patience=config.patience,
            checkpoint_every=config.checkpoint_every,
        )
    if config.keep == "best":
        checkpoints.load_best(modules)
    _save_model(run.encoder, folder / "model")
    trained = Trained(
        folder / "model",
        progress.step,
        progress.start_score or 0.0,
        progress.best_score or 0.0,
        progress.best_step or 0,
    )
    if trained.best_score <= trained.start_score:
        console.print(
            f"Training never beat the untrained encoder on {config.evaluate_on}. A lower --learning-rate usually helps."
        )
    record = {**provenance(), "config": asdict(config), "dev": config.evaluate_on, "data": run.notes} | asdict(progress)
    write_text(folder / "run.json", json.dumps(record, indent=1) + "\n")
    checkpoints.clear()
    return trained


def _prepare(config: TrainConfig) -> _Run:
    """Rows, encoder and method, with the generators seeded as every fresh run of this config has them."""
    import torch
    from accelerate.utils import set_seed

    from nearfar.data.batching import NliBatches
    from nearfar.data.nli import load_nli
    from nearfar.encoder.encoder import Encoder

    if not isinstance(config, SbertConfig):
        raise NearfarError(f"{type(config).__name__} names no method.")
    data = load_nli(
        config.data,
        premise_column=config.premise_column,
        hypothesis_column=config.hypothesis_column,
        label_column=config.label_column,
    )
    encoder = Encoder.from_pretrained(
        config.model,
        pooling=None if config.pooling == "own" else config.pooling,
        max_length=config.max_length,
        device=config.device,
    )
    texts = list(dict.fromkeys(text for row in data.rows for text in row[:2]))
    tokenized = encoder.tokenize(texts)
    token_ids = dict(zip(texts, tokenized.ids, strict=True))

    def embed(sentences: Sequence[str]) -> torch.Tensor:
        with torch.autocast(encoder.device.type, dtype=torch.bfloat16, enabled=config.precision == "bf16"):
            embeddings = encoder([token_ids[sentence] for sentence in sentences])
        return embeddings.float()

    set_seed(config.seed)
    batches = NliBatches(data.rows, config.batch_size, config.seed, config.order)
    method = _method(config, embed, encoder.dim, batches)
    if method.head is not None:
        method.head.to(encoder.device)
    steps = -(-batches.total_steps(config.epochs) // config.accumulate)
    notes = [*data.sources]
    if data.repaired:
        notes.append(f"{data.repaired} fields had control characters or irregular white space, now single spaces")
    if tokenized.truncated:
        notes.append(
            f"{tokenized.truncated} of {len(texts)} sentences are over {encoder.max_length} tokens and cut there"
        )
    if batches.oversized:
        notes.append(f"{batches.oversized} premises have more rows than a batch, and make batches of their own")
    return _Run(data, encoder, method, token_ids, min(steps, config.max_steps or steps), notes)


def _method(config: SbertConfig, embed: "Embed", dim: int, batches: "NliBatches") -> "Method":
    from nearfar.methods import liao

    match config:
        case SclConfig():
            return liao.scl(
                embed,
                dim,
                batches,
                head_layers=config.head_layers,
                scl_weight=config.scl_weight,
                temperature=config.temperature,
                similarity=config.similarity,
                max_positives=_cap(config.max_positives),
                max_negatives=_cap(config.max_negatives),
            )
        case AugmentConfig():
            return liao.augment(
                embed,
                dim,
                batches,
                head_layers=config.head_layers,
                max_positives=_cap(config.max_positives),
                max_negatives=_cap(config.max_negatives),
            )
        case _:
            return liao.sbert(embed, dim, batches, head_layers=config.head_layers)


def _cap(cap: Cap) -> int | None:
    return None if cap == "all" else cap


def _dev_score(encoder: "Encoder", pairs: "Sequence[ScoredPair]", source: str) -> Callable[[], float]:
    """Spearman, in [-1, 1], of the encoder as it then is."""
    from nearfar.evaluation.sts import evaluate_sts

    def score() -> float:
        scored = evaluate_sts(encoder.encode, {source: {source: pairs}}, resamples=0)
        estimate = scored["tasks"][source]["spearman"]["all"]
        if estimate["score"] is None:
            raise NearfarError(f"{source}: no correlation to choose the best step by: {estimate['reason']}.")
        return float(estimate["score"]) / 100

    return score


def _check_folder(config: TrainConfig, *, resume: bool) -> Path:
    """The run folder, made sure to be free, or to hold an unfinished run of the same config."""
    folder = Path(config.output)
    file = folder / "config.toml"
    if not file.exists():
        if resume:
            raise NearfarError(f"{folder}: there is no run to resume.")
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise NearfarError(f"{folder}: is in the way and holds no run; choose another --output.")
        return folder
    kind, values = load_toml(file)
    before, now = asdict(build(kind, values, source=file)), asdict(config)
    differ = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key) and key != "output")
    if kind is not type(config):
        raise NearfarError(f"{folder}: holds a run of another method; choose another --output.")
    if differ:
        raise NearfarError(
            f"{folder}: holds a run with other settings ({', '.join(map(flag, differ))}); choose another --output."
        )
    if (folder / "run.json").exists():
        raise NearfarError(f"{folder}: holds this run, finished; its model is {folder / 'model'}.")
    if not resume:
        raise NearfarError(f"{folder}: holds this run, unfinished. Go on with it by --resume, or remove the folder.")
    return folder


def _describe_rows(rows: Sequence[NliRow], numbers: Sequence[int], *, show: int = 8) -> str:
    lines = [
        f"  row {number}: {LABEL_NAMES[rows[number].label]}: {rows[number].premise!r} / {rows[number].hypothesis!r}"
        for number in numbers[:show]
    ]
    rest = ", ".join(str(number) for number in numbers[show:])
    return "\n".join(lines) + (f"\n  and rows {rest}" if rest else "")


def _save_model(encoder: "Encoder", folder: Path) -> None:
    from nearfar.disk import disk_errors

    fresh = folder.with_name("model.new")
    with disk_errors(folder):
        shutil.rmtree(fresh, ignore_errors=True)
        encoder.save_pretrained(fresh)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
