"""The command line: parses flags and TOML, calls a composition, prints what came out. Nothing else.

``nearfar --help`` and every ``nearfar VERB --help`` cost no torch: a verb's modules are imported when it runs.
"""

import os
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import tyro
from rich.console import Console

from nearfar.config import (
    FINETUNE,
    METHODS,
    BackTranslateConfig,
    CompareConfig,
    EncodeConfig,
    EvaluateConfig,
    FinetuneConfig,
    FinetuneStudyConfig,
    GeometryConfig,
    PredictConfig,
    ReportConfig,
    TrainConfig,
    build,
    load_toml,
    nearest,
)
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.group import Group
    from nearfar.prepare import Plan

OVERVIEW = """nearfar fine-tunes sentence encoders by contrastive learning and proves that they got better.

  nearfar train METHOD --output RUN [flags]     train an encoder; METHOD is one of {methods}
  nearfar train FILE.toml [flags]               the same, settings from a file; flags override it
  nearfar finetune TASK|FILE --output RUN       fine-tune a classifier: sst2, rte ... or a labelled file
  nearfar predict MODEL --input FILE --output FILE        label texts by a fine-tuned classifier
  nearfar evaluate MODEL ... [flags]            score encoders on semantic textual similarity and transfer tasks
  nearfar compare FIRST SECOND ... [flags]      is the first better? models, result files or folders of them
  nearfar geometry MODEL ... --output FOLDER    alignment, uniformity, layers, and plots of the embedding space
  nearfar report RUN|RESULT ... --output FILE.html        one page on what runs came to, that opens anywhere
  nearfar encode MODEL --input FILE --output FILE.npy     vectors of any number of lines; also .parquet
  nearfar back-translate --input FILE --output FILE.tsv   pairs for the methods bt and bt+sg-opt

Each has its own --help, for example: nearfar train scl --help
"""

Parsed = TypeVar("Parsed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 2 for a mistake that the user can mend, 130 after Ctrl-C."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Of several processes that train together, the first one talks.
    console, errors = (
        Console(soft_wrap=True, emoji=False, quiet=os.environ.get("RANK", "0") != "0"),
        Console(stderr=True, soft_wrap=True, emoji=False),
    )
    show = warnings.showwarning
    warnings.showwarning = lambda message, *_, **__: errors.print(f"warning: {message}", markup=False, highlight=False)
    try:
        if not given or given[0] in ("-h", "--help", "help"):
            console.print(OVERVIEW.format(methods=", ".join(METHODS)), markup=False, highlight=False)
            return 0 if given else 2
        if given[0] not in VERBS:
            raise NearfarError(nearest(given[0], VERBS, what="command"))
        return VERBS[given[0]](given[1:], console)
    except NearfarError as error:
        errors.print(f"nearfar: {error}", markup=False, highlight=False, style="red")
        return 2
    except KeyboardInterrupt:
        errors.print("nearfar: stopped.")
        return 130
    finally:
        warnings.showwarning = show


def _train(given: list[str], console: Console) -> int:
    if not given or given[0] in ("-h", "--help"):
        usage = "usage: nearfar train METHOD|FILE.toml --output RUN [--resume] [--dry-run] [flags]\n\n"
        lines = [(kind.__doc__ or "").strip().splitlines()[0] for kind in METHODS.values()]
        console.print(usage + "\n".join(lines), markup=False, highlight=False)
        console.print("\nAll flags of a method: nearfar train METHOD --help", markup=False, highlight=False)
        return 0 if given else 2
    asked = _parse_train(given[0], given[1:])
    config, resume = asked.config, asked.resume

    from nearfar.group import parse_seeds, train_group
    from nearfar.prepare import plan
    from nearfar.train import train
    from nearfar.training.loop import Interrupted

    seeds = None if asked.seeds is None else parse_seeds(asked.seeds)
    if asked.dry_run:
        _print_plan(plan(config), console)
        return 0
    try:
        if seeds is not None:
            group = train_group(config, seeds, resume=resume, console=console)
            _print_group(group, config, console)
            return 0
        trained = train(config, resume=resume, console=console)
    except Interrupted:
        again = " ".join(["nearfar", "train", *given, *([] if resume else ["--resume"])])
        console.print(f"\nStopped after a whole step; everything is saved. Go on with:\n  {again}", markup=False)
        return 130
    console.print(
        f"Spearman on {config.evaluate_on}: {100 * trained.start_score:.2f} before, {100 * trained.best_score:.2f} at "
        f"step {trained.best_step}, the best. The {config.keep} weights are in {trained.model}",
        highlight=False,
    )
    return 0


def _print_group(group: "Group", config: TrainConfig, console: Console) -> None:
    for seed, run in group.runs.items():
        console.print(
            f"seed {seed}: {100 * run.start_score:.2f} before, {100 * run.best_score:.2f} at step {run.best_step}",
            highlight=False,
        )
    best = group.best
    spread = "" if best.sd is None else f", standard deviation {100 * best.sd:.2f}"
    console.print(
        f"Spearman on {config.evaluate_on}, best steps: mean {100 * best.mean:.2f}{spread}, "
        f"from {100 * best.min:.2f} to {100 * best.max:.2f}. The runs are in {config.output}",
        highlight=False,
    )


class _Asked(NamedTuple):
    config: TrainConfig
    seeds: str | None
    resume: bool
    dry_run: bool


def _parse_train(method_or_file: str, flags: list[str]) -> _Asked:
    """What is asked for; flags override the file's values."""
    if method_or_file.endswith(".toml"):
        named, values = load_toml(method_or_file)
        if not issubclass(named, TrainConfig):
            raise NearfarError(f"{method_or_file}: fine-tunes a classifier: nearfar finetune {method_or_file}")
        kind = named
    elif method_or_file in METHODS:
        kind, values = METHODS[method_or_file], {}
    elif method_or_file == FINETUNE:
        raise NearfarError(f"{FINETUNE} fine-tunes a classifier: nearfar finetune TASK|FILE --output RUN")
    else:
        raise NearfarError(nearest(method_or_file, METHODS, what="method"))
    default = build(kind, {"output": "", **values}, source=method_or_file)
    if "output" not in values:
        default = replace(default, output=tyro.MISSING)

    def command(
        config: Annotated[kind, tyro.conf.arg(name="")] = default,  # type: ignore[valid-type]
        seeds: str | None = None,
        resume: bool = False,
        dry_run: bool = False,
    ) -> _Asked:
        """Parse.

        Args:
            config: Settings of the run.
            seeds: Train once for each, as in 1,2,3, into OUTPUT/seed-1 and so on; mean and spread at the end.
            resume: Go on with the run in OUTPUT, which must have the same settings.
            dry_run: Count rows, labels, tokens, steps and memory, and show three batches in words; train nothing.
        """
        return _Asked(config, seeds, resume, dry_run)

    return _parse(command, flags, prog=f"nearfar train {method_or_file}", description=(kind.__doc__ or ""))


def _finetune(given: list[str], console: Console) -> int:
    positional = given[0] if given and not given[0].startswith("-") else None
    config, resume = _parse_finetune(positional, given[1:] if positional else given)

    from nearfar.evaluation.tables import evaluation_tables
    from nearfar.finetune import finetune
    from nearfar.finetune_study import finetune_study
    from nearfar.training.loop import Interrupted

    again = " ".join(["nearfar", "finetune", *given, *([] if resume else ["--resume"])])
    if config.is_study:
        try:
            finetune_study(config, resume=resume, console=console)
        except (Interrupted, KeyboardInterrupt):
            if not Path(config.output, "config.toml").exists():
                raise KeyboardInterrupt from None  # while data were read: there is nothing to go on with
            console.print(f"\nStopped; the runs that were done are kept. Go on with:\n  {again}", markup=False)
            return 130
        console.print((Path(config.output) / "study.md").read_text(encoding="utf-8"), markup=False, highlight=False)
        return 0
    try:
        done = finetune(config.single, resume=resume, console=console)
    except Interrupted:
        console.print(f"\nStopped after a whole step; everything is saved. Go on with:\n  {again}", markup=False)
        return 130
    for table in evaluation_tables(done.result):
        console.print(table, soft_wrap=False)
    console.print(
        f"On the validation rows {100 * done.start_score:.2f} before, {100 * done.best_score:.2f} at step "
        f"{done.best_step}, the best. The {config.keep} weights are in {config.output}/model",
        highlight=False,
        markup=False,
    )
    return 0


def _parse_finetune(task_or_file: str | None, flags: list[str]) -> tuple[FinetuneStudyConfig, bool]:
    """What is asked for, and whether to resume; flags override the values of a config file."""
    values: dict[str, Any] = {"task": task_or_file} if task_or_file else {}
    if task_or_file and task_or_file.endswith(".toml"):
        kind, values = load_toml(task_or_file)
        if not issubclass(kind, FinetuneConfig):
            raise NearfarError(f"{task_or_file}: trains an encoder: nearfar train {task_or_file}")
    default = build(FinetuneStudyConfig, {"output": "", **values}, source=task_or_file or "nearfar finetune")
    if "output" not in values:
        default = replace(default, output=tyro.MISSING)

    def command(
        config: Annotated[FinetuneStudyConfig, tyro.conf.arg(name="")] = default, resume: bool = False
    ) -> tuple[FinetuneStudyConfig, bool]:
        """Parse.

        Args:
            config: Settings of the run, or of each run of the study.
            resume: Go on with what is in OUTPUT, which must have the same settings.
        """
        return config, resume

    doc = FinetuneStudyConfig.__doc__ or ""
    return _parse(command, flags, prog="nearfar finetune [TASK|FILE|FILE.toml]", description=doc)


def _predict(given: list[str], console: Console) -> int:
    def command(
        model: tyro.conf.Positional[str], config: Annotated[PredictConfig, tyro.conf.arg(name="")]
    ) -> tuple[str, PredictConfig]:
        """Parse.

        Args:
            model: A run of nearfar finetune, its model folder, or any sequence classifier of transformers.
            config: What is labelled, and where to.
        """
        return model, config

    model, config = _parse(command, given, prog="nearfar predict", description=PredictConfig.__doc__ or "")

    from nearfar.predict import predict_file

    settings = asdict(config)
    rows = predict_file(model, settings.pop("input"), settings.pop("output"), **settings)
    console.print(f"{rows:,} rows with what was predicted in {config.output}", highlight=False, markup=False)
    return 0


def _print_plan(plan: "Plan", console: Console) -> None:
    lines = [
        *plan.facts,
        f"{plan.sentences:,} distinct sentences, {plan.tokens:,} tokens",
        f"{plan.steps:,} steps, {plan.parameters / 1e6:.1f} million parameters in the encoder, "
        f"{plan.trained / 1e6:.1f} million to train with the heads",
        f"about {plan.memory_gib:.1f} GiB for weights, gradients, moments and activations, beside the program itself",
    ]
    for number, batch in enumerate(plan.batches, start=1):
        lines += ["", f"batch {number}", *(f"  {line}" for line in batch)]
    console.print("\n".join(lines), markup=False, highlight=False)


def _evaluate(given: list[str], console: Console) -> int:
    def command(
        models: tyro.conf.Positional[tuple[str, ...]], config: Annotated[EvaluateConfig, tyro.conf.arg(name="")]
    ) -> tuple[tuple[str, ...], EvaluateConfig]:
        """Parse.

        Args:
            models: Model folders, training runs' folders or groups of them, owner/name on the hub, or baselines
                (glove:FILE, wk:MODEL, whitening:MODEL@TEXTS, flow:MODEL@TEXTS, use).
            config: How they are scored.
        """
        return models, config

    models, config = _parse(command, given, prog="nearfar evaluate", description=EvaluateConfig.__doc__ or "")
    if not models:
        raise NearfarError("evaluate what? nearfar evaluate MODEL [MODEL ...]")
    if config.output and len(models) > 1:
        raise NearfarError("--output takes one model's result; evaluate the models one by one.")

    from nearfar.evaluate import evaluate
    from nearfar.evaluation.tables import evaluation_tables, spread_table
    from nearfar.group import evaluate_group, runs_of

    settings = asdict(config)
    metric, subsets = settings.pop("metric"), settings.pop("subsets")
    for model in models:
        if runs_of(model) is not None:
            console.print(spread_table(evaluate_group(model, **settings)), soft_wrap=False)
            continue
        for table in evaluation_tables(evaluate(model, **settings), metric=metric, subsets=subsets):
            console.print(table, soft_wrap=False)
    return 0


def _compare(given: list[str], console: Console) -> int:
    def command(
        sides: tyro.conf.Positional[tuple[str, ...]], config: Annotated[CompareConfig, tyro.conf.arg(name="")]
    ) -> tuple[tuple[str, ...], CompareConfig]:
        """Parse.

        Args:
            sides: Two or more: models, result files, or folders of result files (the seeds of one setting).
            config: How.
        """
        return sides, config

    sides, config = _parse(command, given, prog="nearfar compare", description=CompareConfig.__doc__ or "")
    if len(sides) < 2:
        raise NearfarError("compare what with what? nearfar compare FIRST SECOND [MORE ...]")

    from nearfar.compare import compare
    from nearfar.evaluation.tables import comparison_table, comparisons_table

    comparison = compare(*sides, **asdict(config))
    table = comparison_table if len(sides) == 2 else comparisons_table
    console.print(table(comparison), soft_wrap=False)
    return 0


def _encode(given: list[str], console: Console) -> int:
    def command(
        model: tyro.conf.Positional[str], config: Annotated[EncodeConfig, tyro.conf.arg(name="")]
    ) -> tuple[str, EncodeConfig]:
        """Parse.

        Args:
            model: A folder, or owner/name on the hub.
            config: What is encoded, and where to.
        """
        return model, config

    model, config = _parse(command, given, prog="nearfar encode", description=EncodeConfig.__doc__ or "")

    from nearfar.encode import encode_file
    from nearfar.encode_output import is_unfinished

    settings = asdict(config)
    try:
        shape = encode_file(model, settings.pop("input"), settings.pop("output"), **settings)
    except KeyboardInterrupt:
        if not is_unfinished(config.output):
            raise
        again = shlex.join(["nearfar", "encode", *given, *([] if config.resume else ["--resume"])])
        console.print(f"\nStopped; the blocks that were done are kept. Go on with:\n  {again}", markup=False)
        return 130
    console.print(f"{shape[0]:,} vectors of {shape[1]} numbers in {config.output}", highlight=False, markup=False)
    return 0


def _geometry(given: list[str], console: Console) -> int:
    def command(
        models: tyro.conf.Positional[tuple[str, ...]], config: Annotated[GeometryConfig, tyro.conf.arg(name="")]
    ) -> tuple[tuple[str, ...], GeometryConfig]:
        """Parse.

        Args:
            models: Model folders, training runs' folders, or owner/name on the hub.
            config: What is measured and drawn, and where to.
        """
        return models, config

    models, config = _parse(command, given, prog="nearfar geometry", description=GeometryConfig.__doc__ or "")
    if not models:
        raise NearfarError("the geometry of what? nearfar geometry MODEL [MODEL ...] --output FOLDER")

    from nearfar.evaluation.geometry_tables import geometry_notes, geometry_table
    from nearfar.geometry import geometry

    result = geometry(models, **asdict(config))
    console.print(geometry_table(result), soft_wrap=False)
    console.print("\n".join(geometry_notes(result)), highlight=False, markup=False)
    console.print(f"In {config.output}: geometry.json, {', '.join(result['plots'])}", highlight=False, markup=False)
    return 0


def _report(given: list[str], console: Console) -> int:
    def command(
        what: tyro.conf.Positional[tuple[str, ...]], config: Annotated[ReportConfig, tyro.conf.arg(name="")]
    ) -> tuple[tuple[str, ...], ReportConfig]:
        """Parse.

        Args:
            what: Training runs' folders, groups of them, result files, folders of them (the seeds of one setting),
                comparison files, geometry folders.
            config: What the page is called and where it is written.
        """
        return what, config

    what, config = _parse(command, given, prog="nearfar report", description=ReportConfig.__doc__ or "")

    from nearfar.report import report

    settings = asdict(config)
    file = report(what, settings.pop("output"), **settings)
    console.print(f"The report is {file}, and in Markdown {file.with_suffix('.md')}", highlight=False, markup=False)
    return 0


def _back_translate(given: list[str], console: Console) -> int:
    def command(config: Annotated[BackTranslateConfig, tyro.conf.arg(name="")]) -> BackTranslateConfig:
        """Parse.

        Args:
            config: What is translated, by which models, and where to.
        """
        return config

    doc = BackTranslateConfig.__doc__ or ""
    config = _parse(command, given, prog="nearfar back-translate", description=doc)

    from nearfar.back_translate import back_translate

    settings = asdict(config)
    file = back_translate(settings.pop("input"), settings.pop("output"), **settings)
    console.print(f"Sentences and their back-translations are in {file}", highlight=False)
    return 0


def _parse(command: Callable[..., Parsed], flags: list[str], *, prog: str, description: str) -> Parsed:
    settings = (tyro.conf.FlagCreatePairsOff,)
    return tyro.cli(command, args=flags, prog=prog, description=description, config=settings)


VERBS: dict[str, Callable[[list[str], Console], int]] = {
    "train": _train,
    "finetune": _finetune,
    "predict": _predict,
    "evaluate": _evaluate,
    "compare": _compare,
    "encode": _encode,
    "geometry": _geometry,
    "report": _report,
    "back-translate": _back_translate,
}
