"""One training run: config -> what :mod:`nearfar.prepare` makes of it -> loop -> run folder.

What ``nearfar train`` calls, and a notebook can call too. A run folder holds

- ``config.toml``: every setting, resolved (and ``second.toml``, those of a second objective);
- ``metrics.jsonl``: loss terms, learning rate and speed of each step, and the scores of each evaluation;
- ``checkpoint/`` and ``best.safetensors`` while it runs;
- ``model/``, a sentence-transformers folder, and ``run.json``, what came out and on what machine, once it is done.
"""

import atexit
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.config import TrainConfig, build, flag, load_toml
from nearfar.config import dump_toml as to_toml
from nearfar.prepare import prepare
from nearfar.types import NearfarError, ScoredPair

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.encoder.encoder import Encoder
    from nearfar.training.gradients import Part
    from nearfar.training.loop import Evaluation


@dataclass(frozen=True)
class Trained:
    """What came out of a run."""

    model: Path
    steps: int
    start_score: float
    """Spearman on the dev pairs before training."""
    best_score: float
    best_step: int


def train(config: TrainConfig, *, resume: bool = False, console: "Console | None" = None) -> Trained:
    """Train, and leave the model in ``config.output``/model.

    ``resume`` goes on with a run that was stopped or killed, which ends with the weights it would have had, to the bit,
    on the same machine with the same number of threads and processes. Started by torchrun, several processes train
    together, as one process with the batches of all would.

    Raises:
        NearfarError: bad data, model or settings; a run folder that is in the way; a loss that is not finite; a disk
            that refuses.
        nearfar.training.loop.Interrupted: after Ctrl-C, with everything saved.
    """
    from accelerate import PartialState
    from rich.console import Console

    from nearfar.data.sts import load_pairs
    from nearfar.disk import disk_errors, write_text
    from nearfar.evaluation.results import provenance
    from nearfar.training.checkpoint import Checkpoints
    from nearfar.training.display import Display, MetricsFile
    from nearfar.training.gradients import Gradients
    from nearfar.training.loop import run as run_loop
    from nearfar.training.optimiser import adamw
    from nearfar.training.processes import Processes, leave

    device = PartialState(cpu=config.device == "cpu").device  # joins the other processes, if this is one of several
    processes = Processes()
    if processes.size > 1:
        atexit.register(leave)
    console = console if console is not None and processes.first else Console(quiet=True)
    folder = processes.from_first(lambda: check_folder(config, resume=resume))
    pairs = load_pairs(config.evaluate_on)
    run = prepare(config, processes=processes.size, device=str(device) if processes.size > 1 else None)
    evaluate = _evaluation(run.encoder, pairs, config, console)
    for fact in run.facts:
        console.print(fact, markup=False, highlight=False)
    if processes.size > 1:
        console.print(f"{processes.size} processes, {config.batch_size * processes.size} rows a batch", highlight=False)

    if processes.first:
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        for name, settings in _settings(config).items():
            write_text(folder / name, settings)
    modules = {"encoder": run.encoder} | {f"head{number}": head for number, head in enumerate(run.mixture.heads)}
    optimiser = adamw(
        run.encoder,
        run.mixture.heads,
        learning_rate=config.learning_rate,
        head_learning_rate=config.head_learning_rate,
        weight_decay=config.weight_decay,
        beta2=config.beta2,
    )
    checkpoints = Checkpoints(folder)
    processes.from_first(checkpoints.mend)
    progress = checkpoints.load(modules, optimiser, processes=processes.size)
    display = Display(console, total_steps=run.total_steps, start=progress.step)
    metrics = (MetricsFile(folder / "metrics.jsonl", resume_at=progress.step),) if processes.first else ()
    with display:
        run_loop(
            run.mixture,
            Gradients(config.seed, processes, config.micro_batch, bf16=config.precision == "bf16"),
            modules=modules,
            optimiser=optimiser,
            checkpoints=checkpoints,
            watchers=(display, *metrics),
            evaluate=evaluate,
            describe_rows=_describe_rows,
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
    trained = Trained(
        folder / "model",
        progress.step,
        progress.start_score or 0.0,
        progress.best_score or 0.0,
        progress.best_step or 0,
    )
    if processes.first:
        if config.keep == "best":
            checkpoints.load_best(modules)
        run.merge()
        _save_model(run.encoder, folder / "model")
        if trained.best_score <= trained.start_score:
            console.print(
                f"Training never beat the untrained encoder on {config.evaluate_on}. "
                "A lower --learning-rate usually helps.",
                markup=False,
            )
        record = {**provenance(), "config": asdict(config), "dev": config.evaluate_on, "data": run.facts}
        record |= asdict(progress)
        write_text(folder / "run.json", json.dumps(record, indent=1) + "\n")
        checkpoints.clear()
    processes.any(False)  # nobody leaves before the model is written
    return trained


def _evaluation(
    encoder: "Encoder", pairs: Sequence[ScoredPair], config: TrainConfig, console: "Console"
) -> Callable[[], "Evaluation"]:
    """Spearman, in [-1, 1], and the geometry, of the encoder as it then is; warns once if all vectors are alike.

    Raises:
        NearfarError: pairs that no encoder can be scored on.
    """
    from nearfar.evaluation.correlation import undefined_because
    from nearfar.evaluation.geometry import collapse_warning, geometry
    from nearfar.evaluation.sts import evaluate_sts
    from nearfar.training.loop import Evaluation

    source, bf16 = config.evaluate_on, config.precision == "bf16"
    places = {text: place for place, text in enumerate(dict.fromkeys(text for pair in pairs for text in pair[:2]))}
    gold = [pair.score for pair in pairs]
    reason = undefined_because(gold, gold) or ("all texts are equal" if len(places) < 2 else None)
    if reason is not None:
        raise NearfarError(f"{source}: no correlation to choose the best step by: {reason}.")
    near = 0.8 * max(gold)
    positives = [(places[first], places[second]) for first, second, score in pairs if score >= near]
    warned: list[str] = []

    def evaluate() -> Evaluation:
        vectors = encoder.encode(list(places), bf16=bf16)
        scored = evaluate_sts(
            lambda texts: vectors[[places[text] for text in texts]], {source: {source: pairs}}, resamples=0
        )
        if source in scored["unavailable"]:
            raise NearfarError(f"{source}: cannot be scored: {scored['unavailable'][source]}.")
        first, second = (vectors[[pair[side] for pair in positives]] for side in (0, 1))
        measures = geometry(vectors, (first, second) if positives else None)
        warning = collapse_warning(measures)
        if warning and not warned:
            warned.append(warning)
            console.print(f"warning: {warning}", highlight=False, style="yellow")
        estimate = scored["tasks"][source]["spearman"]["all"]
        if estimate["score"] is None:
            raise NearfarError(f"{source}: no correlation to choose the best step by: {estimate['reason']}.")
        return Evaluation(float(estimate["score"]) / 100, measures)

    return evaluate


def _settings(config: TrainConfig) -> dict[str, str]:
    """The files that say how the run is made: config.toml, and second.toml if there is a second objective."""
    from nearfar.recipes import OF_THE_RUN, second_of

    second = second_of(config)
    settings = {"config.toml": to_toml(config)}
    return settings | ({} if second is None else {"second.toml": to_toml(second, without=OF_THE_RUN)})


def check_folder(config: TrainConfig, *, resume: bool) -> Path:
    """The run folder, made sure to be free, or to hold an unfinished run of the same config.

    Raises:
        NearfarError: it is not.
    """
    folder = Path(config.output)
    file = folder / "config.toml"
    if not file.exists():
        if resume:
            raise NearfarError(f"{folder}: there is no run to resume.")
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise NearfarError(f"{folder}: is in the way and holds no run; choose another --output.")
        return folder
    _refuse_other_settings(folder, config)
    if (folder / "run.json").exists():
        raise NearfarError(f"{folder}: holds this run, finished; its model is {folder / 'model'}.")
    if not resume:
        raise NearfarError(f"{folder}: holds this run, unfinished. Go on with it by --resume, or remove the folder.")
    return folder


def trained_before(config: TrainConfig) -> Trained:
    """What came out of the finished run in ``config.output``.

    Raises:
        NearfarError: it has other settings.
    """
    folder = Path(config.output)
    _refuse_other_settings(folder, config)
    account = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return Trained(folder / "model", *(account[key] for key in ("step", "start_score", "best_score", "best_step")))


def _refuse_other_settings(folder: Path, config: TrainConfig) -> None:
    from nearfar.recipes import second_of

    differ = _differ(folder / "config.toml", config)
    if "method" in differ:
        raise NearfarError(f"{folder}: holds a run of another method; choose another --output.")
    file = folder / "second.toml"
    if file.exists() and second_of(config) != second_of(replace(config, second=str(file))):
        differ.append("second")
    if differ:
        raise NearfarError(
            f"{folder}: holds a run with other settings ({', '.join(map(flag, differ))}); choose another --output."
        )


def _differ(file: Path, config: TrainConfig) -> list[str]:
    """In which settings the file and the config differ; OUTPUT, a path that can be written in many ways, is none."""
    kind, values = load_toml(file)
    before, now = asdict(build(kind, values, source=file)), asdict(config)
    differ = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key) and key != "output")
    return differ if kind is type(config) else ["method", *differ]


def _describe_rows(parts: "Sequence[Part]", *, show: int = 16) -> str:
    """The rows of the parts of a batch, by number, and the batch in words."""
    lines: list[str] = []
    for method, batch, _ in parts:
        words = method.describe(batch)  # type: ignore[attr-defined]
        lines += ["  rows " + ", ".join(map(str, batch.rows)), *(f"  {line}" for line in words[:show])]
        lines += ["  ..."] if len(words) > show else []
    return "\n".join(lines)


def _save_model(encoder: "Encoder", folder: Path) -> None:
    from nearfar.disk import disk_errors

    fresh = folder.with_name("model.new")
    with disk_errors(folder):
        shutil.rmtree(fresh, ignore_errors=True)
        encoder.save_pretrained(fresh)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
