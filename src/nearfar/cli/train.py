"""``nearfar train``: an encoder, or one for each of several seeds."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from nearfar.cli.parsing import SAVED, ExtraOption, parse, report_interrupt
from nearfar.config.files import load_method
from nearfar.config.training import TrainConfig, parse_seeds
from nearfar.registry import METHODS
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.commands.train.group import Group
    from nearfar.commands.train.prepare import Plan


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Train an encoder, or one for each seed, or only plan it (--dry-run); returns the exit status."""
    if not argv or argv[0] in ("-h", "--help"):
        usage = "usage: nearfar train METHOD|FILE.toml --output RUN [--resume] [--dry-run [--verbose]] [flags]\n"
        lines = [(kind.__doc__ or "").strip().splitlines()[0] for kind in METHODS.values()]
        more = "All flags of a method: nearfar train METHOD --help"
        sys.stdout.write("\n".join([usage, *lines, "", more, ""]))
        return 0 if argv else 2
    args = _parse(argv[0], argv[1:])
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
        f"Spearman on {config.evaluate_on}: {100 * trained.start_score:.2f} before training, "
        f"{100 * trained.best_score:.2f} at the best step, {trained.best_step}. The {config.keep} weights are in "
        f"{trained.model}",
        highlight=False,
        markup=False,
    )
    return 0


def _print_group(group: "Group", config: TrainConfig, console: "Console") -> None:
    for seed, run in group.runs.items():
        console.print(
            f"seed {seed}: {100 * run.start_score:.2f} before training, {100 * run.best_score:.2f} at step "
            f"{run.best_step}",
            highlight=False,
            markup=False,
        )
    best = group.best
    spread = "" if best.sd is None else f", standard deviation {100 * best.sd:.2f}"
    console.print(
        f"Best Spearman on {config.evaluate_on}: mean {100 * best.mean:.2f}{spread}, "
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


def _parse(method_or_file: str, flags: list[str]) -> _TrainArgs:
    """The config and the other options. Flags override the values of a config file."""
    if method_or_file.startswith("-"):
        raise NearfarError(f"{method_or_file}: the method comes first: nearfar train METHOD|FILE.toml --output RUN")
    kind, values = load_method(method_or_file)
    source = method_or_file if method_or_file.endswith(".toml") else None
    extras = (
        ExtraOption(
            "seeds",
            str | None,
            "Train once for each seed, as in 1,2,3, into OUTPUT/seed-1 and so on; prints mean and standard deviation.",
            None,
        ),
        ExtraOption("resume", bool, "Resume the run in OUTPUT; all settings must be the same.", False),
        ExtraOption(
            "dry_run",
            bool,
            "Do not train. Check everything that a run checks, print three batches as text, and count rows, labels, "
            "tokens, steps and memory.",
            False,
        ),
        ExtraOption(
            "verbose", bool, "With --dry-run, print all anchors of each batch, not only the first three.", False
        ),
    )
    prog = f"nearfar train {method_or_file}"
    config, extra_values = parse(kind, flags, prog=prog, extras=extras, values=values, source=source)
    return _TrainArgs(config, **extra_values)


def _print_plan(plan: "Plan", console: "Console", *, runs: int) -> None:
    """Print batches first, then counts, so that the counts stay visible on the screen."""
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
        f"about {plan.memory_gib:.1f} GiB for weights, gradients, optimiser state and activations, plus the program",
    ]
    if runs > 1:
        lines.append(f"{runs} runs of this size, one for each seed")
    console.print("\n".join(lines), markup=False, highlight=False)
