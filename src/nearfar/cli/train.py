"""``nearfar train``: an encoder, or the plan of its training."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nearfar.cli.parsing import SAVED, ExtraOption, parse, report_interrupt
from nearfar.config.files import check_values, load_method
from nearfar.config.training import TrainConfig
from nearfar.config.values import flag
from nearfar.registry import METHODS
from nearfar.types import metric_title

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from nearfar.commands.train.choose import Choice
    from nearfar.commands.train.command import TrainResult
    from nearfar.commands.train.prepare import Plan


USAGE = """usage: nearfar train --data FILE --output RUN [flags]
       nearfar train METHOD|FILE.toml --output RUN [flags]

Without a method, the columns of FILE choose it:

  anchor, positive             pairs             info-nce
  anchor, positive, negative   triplets          info-nce
  premise, hypothesis, label   NLI rows          scl; nli-order if --model is a plain transformers model
  text, label                  labelled texts    supcon-text
  sentence1, sentence2, score  scored pairs      regression
  lines of text, one column    sentences         sg-opt1

From a plain transformers model, all of them also get the settings of a measured recipe.
Pairs may also be called query and positive, query and document, question and answer, sent0 and sent1; negatives
hard_neg. Rows are held out: half choose the best step, half test the result (--hold-out, --evaluate-on).
--dry-run checks a run before it starts, --resume continues one that was stopped. Several seeds: nearfar study.

Methods:
"""


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Train an encoder, or only plan it (--dry-run); returns the exit status."""
    if not argv or argv[0] in ("-h", "--help"):
        lines = [(kind.__doc__ or "").strip().splitlines()[0] for kind in METHODS.values()]
        more = "All flags of a method: nearfar train METHOD --help"
        sys.stdout.write("\n".join([USAGE, *lines, "", more, ""]))
        return 0 if argv else 2
    choice = _choose(argv) if argv[0].startswith("-") else None
    args = _parse(argv[0], argv[1:]) if choice is None else _parse_rows(argv, choice)
    config, resume, console = args.config, args.resume, make_console()
    if choice is not None:
        console.print(choice.explain(), markup=False, highlight=False)

    if args.dry_run:
        from nearfar.commands.train.prepare import plan

        planned = plan(config, resume=resume, anchors=None if args.verbose else 3, console=console)
        _print_plan(planned, console)
        return 0

    from nearfar.commands.train.command import train
    from nearfar.training.trainer import Interrupted

    try:
        trained = train(config, resume=resume, console=console)
    except Interrupted:
        return report_interrupt(SAVED, console, "train", argv, resume=resume)
    _print_run(trained, config, console)
    return 0


def _print_run(trained: "TrainResult", config: TrainConfig, console: "Console") -> None:
    if trained.metric is None or trained.start_score is None or trained.best_score is None:
        console.print(f"The weights of the last step are in {trained.model}", highlight=False, markup=False)
    else:
        console.print(
            f"{metric_title(trained.metric)} on {trained.dev}: {100 * trained.start_score:.2f} before training, "
            f"{100 * trained.best_score:.2f} at the best step, {trained.best_step}. The {config.keep} weights are in "
            f"{trained.model}",
            highlight=False,
            markup=False,
        )
    from nearfar.commands.train.after import before_after
    from nearfar.evaluation.render import to_rich

    if trained.comparison is not None:
        console.print(to_rich(before_after(trained.comparison, trained.metric or "")), soft_wrap=False)
    lines = _next_commands(trained.model.parent, config.model, held_out=trained.comparison is not None)
    console.print("\n".join(["Next:", *lines]), markup=False, highlight=False)


def _next_commands(run: Path, model: str, *, held_out: bool) -> list[str]:
    """Commands to go on with after training, one for each line."""
    trained = run / "model"
    lines = [
        ["nearfar", "compare", str(run), model, *(["--held-out"] if held_out else ["--tasks", "FILE"])],
        ["nearfar", "search", "--model", str(trained), "--input", "FILE", "QUERY"],
        ["nearfar", "encode", str(trained), "--input", "FILE", "--output", "vectors.npy"],
    ]
    return [f"  {shlex.join(line)}" for line in lines]


class _TrainArgs(NamedTuple):
    config: TrainConfig
    resume: bool
    dry_run: bool
    verbose: bool


def _parse(method_or_file: str, flags: list[str]) -> _TrainArgs:
    """The config and the other options. Flags override the values of a config file."""
    kind, values = load_method(method_or_file)
    source = method_or_file if method_or_file.endswith(".toml") else None
    return _parse_flags(kind, flags, prog=f"nearfar train {method_or_file}", values=values, source=source)


def _choose(flags: list[str]) -> "Choice":
    """The method that the columns of --data choose."""
    from nearfar.commands.train.choose import CHANGES_RECIPE, COLUMN_SETTINGS, choose_method

    given = {name: values[0] for name in (*COLUMN_SETTINGS, *CHANGES_RECIPE) if (values := _values(flags, flag(name)))}
    data = check_values(TrainConfig, {"data": _values(flags, "--data")}, source="nearfar train")["data"]
    model = _values(flags, "--model") or [TrainConfig.model]
    return choose_method(data, given, model=model[0])


def _parse_rows(flags: list[str], choice: "Choice") -> _TrainArgs:
    """The config and the other options, without a method on the command line."""
    return _parse_flags(METHODS[choice.method], flags, prog="nearfar train", values=choice.values)


def _values(flags: "Sequence[str]", name: str) -> list[str]:
    """The values of a flag on the command line."""
    found: list[str] = []
    inside = False
    for word in flags:
        if word.startswith("--"):
            known, equals, value = word.partition("=")
            inside = known.replace("_", "-") == name
            found += [value] if inside and equals else []
        elif inside:
            found.append(word)
    return found


def _parse_flags(
    kind: type[TrainConfig],
    flags: list[str],
    *,
    prog: str,
    values: "Mapping[str, Any]",
    source: str | None = None,
) -> _TrainArgs:
    extras = (
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
    config, extra_values = parse(kind, flags, prog=prog, extras=extras, values=values, source=source)
    return _TrainArgs(config, **extra_values)


def _print_plan(plan: "Plan", console: "Console") -> None:
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
    console.print("\n".join(lines), markup=False, highlight=False)
