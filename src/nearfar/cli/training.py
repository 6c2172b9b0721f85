"""``nearfar train`` and ``nearfar finetune``: what is asked for, and what came out of it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nearfar.cli.parsing import ExtraOption, parse, report_interrupt
from nearfar.config.files import load_method, load_toml
from nearfar.config.training import TrainConfig, parse_seeds
from nearfar.registry import METHODS
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.commands.train.group import Group
    from nearfar.commands.train.prepare import Plan
    from nearfar.config.finetune import FinetuneStudyConfig

SAVED = " after a whole step; everything is saved"


def train_verb(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Train an encoder, or one for each of several seeds; or only say what would be trained on."""
    if not argv or argv[0] in ("-h", "--help"):
        usage = "usage: nearfar train METHOD|FILE.toml --output RUN [--resume] [--dry-run [--verbose]] [flags]\n"
        lines = [(kind.__doc__ or "").strip().splitlines()[0] for kind in METHODS.values()]
        more = "All flags of a method: nearfar train METHOD --help"
        sys.stdout.write("\n".join([usage, *lines, "", more, ""]))
        return 0 if argv else 2
    args = _parse_train(argv[0], argv[1:])
    config, resume, console = args.config, args.resume, make_console()
    seeds = None if args.seeds is None else parse_seeds(args.seeds)

    from nearfar.commands.train.command import train
    from nearfar.commands.train.group import next_run, train_group
    from nearfar.commands.train.prepare import plan
    from nearfar.training.loop import Interrupted

    if args.dry_run:
        if seeds is not None:
            config, resume = next_run(config, seeds, resume=resume)
        planned = plan(config, resume=resume, anchors=None if args.verbose else 3, console=console)
        _print_plan(planned, console, runs=len(seeds or (1,)))
        return 0
    try:
        if seeds is not None:
            group = train_group(config, seeds, resume=resume, console=console)
            _print_group(group, config, console)
            return 0
        trained = train(config, resume=resume, console=console)
    except Interrupted:
        return report_interrupt(SAVED, console, "train", argv, resume=resume)
    console.print(
        f"Spearman on {config.evaluate_on}: {100 * trained.start_score:.2f} before, {100 * trained.best_score:.2f} at "
        f"step {trained.best_step}, the best. The {config.keep} weights are in {trained.model}",
        highlight=False,
        markup=False,
    )
    return 0


def _print_group(group: "Group", config: TrainConfig, console: "Console") -> None:
    for seed, run in group.runs.items():
        console.print(
            f"seed {seed}: {100 * run.start_score:.2f} before, {100 * run.best_score:.2f} at step {run.best_step}",
            highlight=False,
            markup=False,
        )
    best = group.best
    spread = "" if best.sd is None else f", standard deviation {100 * best.sd:.2f}"
    console.print(
        f"Spearman on {config.evaluate_on}, best steps: mean {100 * best.mean:.2f}{spread}, "
        f"from {100 * best.min:.2f} to {100 * best.max:.2f}. The runs are in {config.output}",
        highlight=False,
        markup=False,
    )


class _TrainArgs(NamedTuple):
    config: TrainConfig
    seeds: str | None
    resume: bool
    dry_run: bool
    verbose: bool


def _parse_train(method_or_file: str, flags: list[str]) -> _TrainArgs:
    """What is asked for; flags override the file's values."""
    if method_or_file.startswith("-"):
        raise NearfarError(f"{method_or_file}: name the method first: nearfar train METHOD|FILE.toml --output RUN")
    kind, values = load_method(method_or_file)
    source = method_or_file if method_or_file.endswith(".toml") else None
    extras = (
        ExtraOption(
            "seeds",
            str | None,
            "Train once for each, as in 1,2,3, into OUTPUT/seed-1 and so on; mean and spread at the end.",
            None,
        ),
        ExtraOption("resume", bool, "Go on with the run in OUTPUT, which must have the same settings.", False),
        ExtraOption(
            "dry_run",
            bool,
            "Check all that a run checks, show three batches in words, count rows, labels, tokens, steps and memory; "
            "train nothing.",
            False,
        ),
        ExtraOption(
            "verbose", bool, "With --dry-run, show all anchors of each batch in place of the first three.", False
        ),
    )
    prog = f"nearfar train {method_or_file}"
    config, extra_values = parse(kind, flags, prog=prog, extras=extras, values=values, source=source)
    return _TrainArgs(config, **extra_values)


def _print_plan(plan: "Plan", console: "Console", *, runs: int) -> None:
    """Batches first: they are many lines, and the counts should be left on the screen."""
    lines: list[str] = []
    for number, batch in enumerate(plan.batches, start=1):
        lines += ["", f"batch {number}", *(f"  {line}" for line in batch)]
    lines += [
        "",
        *plan.facts,
        plan.dev,
        f"{plan.sentences:,} distinct sentences, {plan.tokens:,} tokens",
        f"{plan.steps:,} steps, {plan.parameters / 1e6:.1f} million parameters in the encoder, "
        f"{plan.trained / 1e6:.1f} million to train with the heads",
        f"about {plan.memory_gib:.1f} GiB for weights, gradients, moments and activations, beside the program itself",
    ]
    if runs > 1:
        lines.append(f"{runs} runs like this one, one for each seed")
    console.print("\n".join(lines), markup=False, highlight=False)


def finetune_verb(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Fine-tune a classifier, or do a study of many runs."""
    positional = argv[0] if argv and not argv[0].startswith("-") else None
    config, resume = _parse_finetune(positional, argv[1:] if positional else argv)
    console = make_console()

    from nearfar.commands.finetune.command import finetune
    from nearfar.commands.finetune.study import finetune_study
    from nearfar.evaluation.tables import evaluation_tables
    from nearfar.training.loop import Interrupted

    if config.is_study:
        try:
            finetune_study(config, resume=resume, console=console)
        except (Interrupted, KeyboardInterrupt):
            if not Path(config.output, "config.toml").exists():
                raise KeyboardInterrupt from None  # while data were read: there is nothing to go on with
            return report_interrupt("; the runs that were done are kept", console, "finetune", argv, resume=resume)
        console.print((Path(config.output) / "study.md").read_text(encoding="utf-8"), markup=False, highlight=False)
        return 0
    try:
        done = finetune(config.single, resume=resume, console=console)
    except Interrupted:
        return report_interrupt(SAVED, console, "finetune", argv, resume=resume)
    for table in evaluation_tables(done.result):
        console.print(table, soft_wrap=False)
    console.print(
        f"On the validation rows {100 * done.start_score:.2f} before, {100 * done.best_score:.2f} at step "
        f"{done.best_step}, the best. The {config.keep} weights are in {config.output}/model",
        highlight=False,
        markup=False,
    )
    return 0


def _parse_finetune(task_or_file: str | None, flags: list[str]) -> "tuple[FinetuneStudyConfig, bool]":
    """What is asked for, and whether to resume; flags override the values of a config file."""
    from nearfar.config.finetune import FinetuneConfig, FinetuneStudyConfig

    values: dict[str, Any] = {} if task_or_file is None else {"task": task_or_file}
    source = None
    if task_or_file is not None and task_or_file.endswith(".toml"):
        source = task_or_file
        kind, values = load_toml(source)
        if not issubclass(kind, FinetuneConfig):
            raise NearfarError(f"{source}: trains an encoder: nearfar train {source}")
    resume = ExtraOption("resume", bool, "Go on with what is in OUTPUT, which must have the same settings.", False)
    prog = "nearfar finetune [TASK|FILE|FILE.toml]"
    config, extra_values = parse(FinetuneStudyConfig, flags, prog=prog, extras=(resume,), values=values, source=source)
    return config, extra_values["resume"]
