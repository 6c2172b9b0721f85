"""The verbs that make models and training rows: train, tune, finetune, mine, soup, static, back-translate."""

import re
import shlex
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nearfar
from nearfar.cli.parsing import Option, parse
from nearfar.cli.verbs import SAVED, Call, MakeConsole, short, verb
from nearfar.config.bounds import Positive
from nearfar.config.training import FinetuneConfig, TrainConfig
from nearfar.config.values import flag
from nearfar.registry import METHODS
from nearfar.settings import check_values, load_method, load_toml, read_toml
from nearfar.types import NearfarError, metric_title

if TYPE_CHECKING:
    from nearfar.commands.mine import MiningResult
    from nearfar.commands.train import TrainResult
    from nearfar.commands.train.choose import Choice
    from nearfar.commands.train.plan import Plan


_WEIGHT = re.compile(r"\d*\.?\d+(e-?\d+)?")
"""The weight of a set, after the name of its file."""
RESUME = Option("resume", bool, "Resume the run in OUTPUT; all settings must be the same.", False, group="Run")
DRY_RUN = Option(
    "dry_run",
    bool,
    "Do not train. Check everything that a run checks, print three batches as text, and count rows, labels, tokens, "
    "steps and memory.",
    False,
    group="Run",
)
VERBOSE = Option(
    "verbose", bool, "With --dry-run, print all anchors of each batch, not only the first three.", False, group="Run"
)
BUDGET = Option("budget", Positive, "Minutes in which tries begin; the last try and the test end after them.")


def train(argv: list[str], make_console: MakeConsole) -> int:
    """Train an encoder, or only plan it (--dry-run); returns the exit status."""
    if not argv or argv[0] in ("-h", "--help"):
        lines = [(kind.__doc__ or "").strip().splitlines()[0] for kind in METHODS.values()]
        more = "All flags of a method: nearfar train METHOD --help"
        usage = Path(__file__).with_name("train_usage.txt").read_text("utf-8")
        sys.stdout.write("\n".join([usage, *lines, "", more, ""]))
        return 0 if argv else 2
    kind, values, flags, named = _method(argv)
    return _train(Call("train", argv, make_console), kind, values, flags, **named)


def _method(argv: list[str]) -> tuple[type[TrainConfig], dict[str, Any], list[str], dict[str, str]]:
    """The method's config class, its values and the flags; and a note, or the file that the values are from."""
    method, flags = _first_and_flags(argv)
    flags, of_sets = split_sets(flags)
    if method is None:
        choice = _choose(flags, of_sets)
        return METHODS[choice.method], {**choice.values, **of_sets}, flags, {"note": choice.explain()}
    kind, values = load_method(method)
    values = {**values, **of_sets}
    note = (
        f"{method} with its own defaults. nearfar train --data, without a method, takes the settings that were "
        "measured for the rows and the start."
    )
    return kind, values, flags, {"source": method} if method.endswith(".toml") else {"note": note}


def tune(argv: list[str], make_console: MakeConsole) -> int:
    """Search settings, and train and test the best ones; returns the exit status."""
    if not argv or argv[0] in ("-h", "--help"):
        sys.stdout.write(Path(__file__).with_name("tune_usage.txt").read_text("utf-8"))
        return 0 if argv else 2
    call, (kind, values, flags, named) = Call("tune", argv, make_console), _method(argv)
    how: dict[str, Any] = {"values": values, "source": named.get("source"), "extras": (RESUME, BUDGET)}
    config, options = parse(kind, flags, prog=f"nearfar tune {_first_and_flags(argv)[0] or ''}".rstrip(), **how)
    call.say(named.get("note", ""))

    from nearfar.evaluation.tables import screen_tables
    from nearfar.training import Interrupted

    given = [word.partition("=")[0].strip("-").replace("-", "_") for word in flags]
    try:
        tuned = nearfar.tune(config, fixed=given, console=call.console, **options)
    except (Interrupted, KeyboardInterrupt):
        return call.interrupted("; the tries are saved", resumed=options["resume"])
    for table in [tuned.table(), *(screen_tables(tuned.comparison) if tuned.comparison else ())]:
        call.show(table)
    _say_run(call, tuned.trained, tuned.config)
    return 0


def adapt(argv: list[str], make_console: MakeConsole) -> int:
    """Train an encoder on documents alone, or only plan it (--dry-run); returns the exit status."""
    documents, flags = _first_and_flags(argv)
    call, kind = Call("adapt", argv, make_console), METHODS["documents"]
    if {"-h", "--help"} & set(flags):
        return _train(call, kind, {}, flags)
    if documents is None:
        raise NearfarError("name the documents first: nearfar adapt DOCUMENTS --output RUN")
    flags, of_sets = split_sets(["--data", documents, *flags])
    choice = _choose(flags, of_sets, documents=True)
    return _train(call, kind, {**choice.values, **of_sets}, flags, note=choice.explain())


def _train(
    call: Call,
    kind: type[TrainConfig],
    values: Mapping[str, Any],
    flags: list[str],
    *,
    note: str | None = None,
    source: str | None = None,
) -> int:
    """Train by the ``values`` of a recipe or a file, or only plan it, and print what comes of it.

    ``note`` says which method it is and why; ``source`` is the file that the values are from.
    """
    first = "DOCUMENTS" if call.verb == "adapt" else _first_and_flags([*call.argv])[0] or ""
    prog = f"nearfar {call.verb} {first}".rstrip()
    config, options = parse(
        kind, flags, prog=prog, extras=(RESUME, DRY_RUN, VERBOSE), values=dict(values), source=source
    )
    if note is not None:
        call.say(note)
    if options["dry_run"]:
        from nearfar.commands.train.plan import plan

        anchors = None if options["verbose"] else 3
        _say_plan(call, plan(config, resume=options["resume"], anchors=anchors, console=call.console))
        return 0

    from nearfar.training import Interrupted

    try:
        trained = nearfar.train(config, resume=options["resume"], console=call.console)
    except Interrupted:
        return call.interrupted(SAVED, resumed=options["resume"])
    _say_run(call, trained, config)
    return 0


def _first_and_flags(argv: list[str]) -> tuple[str | None, list[str]]:
    """The first argument, if it is no flag, and the flags."""
    return (argv[0], argv[1:]) if argv and not argv[0].startswith("-") else (None, argv)


def _next_commands(run: Path, model: str, *, held_out: bool, labels: bool) -> list[str]:
    """Commands to go on with after training, one for each line."""
    trained = run / "model"
    lines = [
        *([["nearfar", "predict", str(run), "--input", "FILE", "--output", "labels.csv"]] if labels else []),
        ["nearfar", "compare", str(run), model, *(["--held-out"] if held_out else ["--tasks", "FILE"])],
        ["nearfar", "search", "--model", str(trained), "--input", "FILE", "QUERY"],
        ["nearfar", "encode", str(trained), "--input", "FILE", "--output", "vectors.npy"],
    ]
    return [f"  {shlex.join(line)}" for line in lines]


def split_sets(flags: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The flags with the first --data alone, and the settings ``sets`` and ``weight`` that all of them ask for.

    Each further --data names a set of its own. A number after the last file, as in pairs.tsv=0.3, is a set's weight.
    """
    others: list[str] = []
    groups: list[list[str]] = []
    words = others
    for word in flags:
        name, equals, value = word.partition("=")
        if name == "--data":
            words = [value] if equals else []
            groups.append(words)
            continue
        words = others if word.startswith("-") else words
        words.append(word)
    if not groups:
        return flags, {}
    first, *sets = map(_weighted, groups)
    return ["--data", *first.pop("data"), *others], first | ({"sets": sets} if sets else {})


def _weighted(words: list[str]) -> dict[str, Any]:
    """The data of a set, and its weight if the last word ends in one."""
    if not words:
        raise NearfarError("--data: needs a value; give one or more.")
    name, _, weight = words[-1].rpartition("=")
    if Path(words[-1]).exists() or not name:
        return {"data": words}
    if not _WEIGHT.fullmatch(weight):
        if Path(name).exists():
            raise NearfarError(f"--data {words[-1]}: {weight!r} is no weight; give a number, as in {name}=0.3.")
        return {"data": words}
    return {"data": [*words[:-1], name], "weight": float(weight)}


def _choose(flags: list[str], of_sets: Mapping[str, Any], *, documents: bool = False) -> "Choice":
    """The method that the columns of --data choose; with ``documents``, that for documents."""
    from nearfar.commands.train.choose import CHANGES_RECIPE, choose_method
    from nearfar.commands.train.recipes import COLUMN_SETTINGS

    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("data", "model", *COLUMN_SETTINGS, *CHANGES_RECIPE):
        parser.add_argument(flag(name), f"--{name}", dest=name, nargs="*")
    given = {name: words for name, words in vars(parser.parse_known_args(flags)[0]).items() if words}
    data = check_values(TrainConfig, {"data": given.pop("data", ())}, source="nearfar train")["data"]
    model, *_ = given.pop("model", [TrainConfig.model])
    own = {**of_sets, **{name: words[0] for name, words in given.items()}}
    return choose_method(data, own, model=model, documents=documents)


def _say_plan(call: Call, plan: "Plan") -> None:
    """Print batches first, then counts, so that the counts stay visible on the screen."""
    lines: list[str] = []
    for number, batch in enumerate(plan.batches, start=1):
        lines += ["", f"batch {number}", *(f"  {line}" for line in batch)]
    call.say(
        *lines,
        "",
        *plan.facts,
        plan.dev,
        f"{plan.sentences:,} distinct sentences, {plan.tokens:,} tokens",
        f"{plan.steps:,} steps, {plan.parameters / 1e6:.1f} million parameters in the encoder, "
        f"{plan.trained / 1e6:.1f} million to train with the heads",
        f"about {plan.memory_gib:.1f} GiB for weights, gradients, optimiser state and activations, plus the program",
    )


def _say_run(call: Call, trained: "TrainResult", config: TrainConfig) -> None:
    from nearfar.runs.held_out import before_after, guard_table, has_held_out

    if trained.comparison is not None:
        call.show(before_after(trained.comparison))
    if trained.guard is not None:
        call.show(guard_table(trained.guard, trained.tried))
    run = trained.model.parent
    if trained.labels is not None:
        from nearfar.commands.train.after import PICTURE
        from nearfar.evaluation.tables.evaluation import evaluation_tables

        for table in evaluation_tables(trained.labels, screen=True):
            call.show(table)
        call.say(f"Which labels are mistaken for which: {run / PICTURE}")
    if trained.metric is None or trained.start_score is None or trained.best_score is None:
        call.say(f"The weights of the last step are in {trained.model}")
    else:
        best = f"{100 * trained.best_score:.2f} at the best step, {trained.best_step}"
        kept = f"The {config.keep} weights"
        if trained.best_step == 0:
            best = "no step was better"
        if trained.tried and (share := trained.tried[-1].start_share):
            kept += f", averaged with {share:.0%} of the start,"
        if trained.model_is_start:
            kept = "The weights before training"
        start = f"{100 * trained.start_score:.2f} before training"
        call.say(f"{metric_title(trained.metric)} on {trained.dev}: {start}, {best}. {kept} are in {trained.model}")
    if trained.kept_neighbours is not None and not trained.model_is_start:
        known = "" if trained.guard else " Whether other texts got worse is not known; --guard SET tests it."
        call.say(f"{trained.kept_neighbours:.0%} of the ten nearest neighbours of your texts are the start's.{known}")
    labels = trained.labels is not None
    call.say("Next:", *_next_commands(run, config.model, held_out=has_held_out(run), labels=labels))


def finetune(argv: list[str], make_console: MakeConsole) -> int:
    """Fine-tune a classifier; returns the exit status."""
    call = Call("finetune", argv, make_console)
    config, resume = _parse_finetune(*_first_and_flags(argv))

    from nearfar.evaluation.tables.evaluation import evaluation_tables
    from nearfar.training import Interrupted

    try:
        done = nearfar.finetune(config, resume=resume, console=call.console)
    except Interrupted:
        return call.interrupted(SAVED, resumed=resume)
    for table in evaluation_tables(done.result, screen=True):
        call.show(table)
    metric = f" ({done.result.training.metric})" if done.result.training else ""
    call.say(
        f"Validation score{metric}: {100 * done.start_score:.2f} before training, {100 * done.best_score:.2f} at the "
        f"best step, {done.best_step}. The {config.keep} weights are in {config.output}/model"
    )
    return 0


def _parse_finetune(task_or_file: str | None, flags: list[str]) -> tuple[FinetuneConfig, bool]:
    """The config, and whether to resume. Flags override the values of a config file, or those recommended."""
    prog, extras = "nearfar finetune [TASK|FILE|FILE.toml]", (RESUME,)
    if task_or_file is not None and task_or_file.endswith(".toml"):
        kind, values = load_toml(task_or_file)
        if not issubclass(kind, FinetuneConfig):
            raise NearfarError(f"{task_or_file}: is a config for training an encoder; use nearfar train {task_or_file}")
        config, options = parse(FinetuneConfig, flags, prog=prog, extras=extras, values=values, source=task_or_file)
        return config, options["resume"]
    values = {} if task_or_file is None else {"task": task_or_file}
    config, _ = parse(FinetuneConfig, flags, prog=prog, extras=extras, values=values)

    from nearfar.commands.finetune import recommended_settings

    values |= recommended_settings(config)
    config, options = parse(FinetuneConfig, flags, prog=prog, extras=extras, values=values)
    return config, options["resume"]


def back_translate(argv: list[str], make_console: MakeConsole) -> int:
    """Write sentences and their back-translations; returns the exit status."""
    file, flags = _first_and_flags(argv)
    values: dict[str, Any] = {}
    if file is not None:
        if not file.endswith(".toml"):
            raise NearfarError(f"{file}: a file of settings ends in .toml; name the sentences by --input {file}")
        values = read_toml(file)
    if "method" in values:
        raise NearfarError(f"{file}: is a config for training; back-translate needs one without the key 'method'.")
    prog = "nearfar back-translate [FILE.toml]"
    config, _ = parse(nearfar.BackTranslateConfig, flags, prog=prog, values=values, source=file)

    written = nearfar.back_translate(config)
    Call("back-translate", argv, make_console).say(f"Wrote sentences and their back-translations to {written}")
    return 0


@verb()
def mine(call: Call, config: "nearfar.MineConfig") -> int | None:
    """Write triplets with hard negatives."""
    from nearfar.commands.mine import summary_file

    try:
        result = nearfar.mine(config)
    except KeyboardInterrupt:
        return call.kept_vectors(config.output)
    train = shlex.join(
        ["nearfar", "train", "--model", str(config.model), "--data", str(config.output), "--output", "RUN"]
    )
    call.say(
        *_counts(result, config),
        "",
        "Examples, at the quantiles 0, 25, 50, 75 and 100% of the negative's score:",
        "\n\n".join(
            f"  anchor    {short(example.anchor, 100)}\n"
            f"  positive  {short(example.positive, 100)}  ({example.positive_score:.3f})\n"
            f"  negative  {short(example.negative, 100)}  ({example.negative_score:.3f})"
            for example in result.examples
        ),
        "",
        f"Summary: {summary_file(config.output)}",
        f"Train on the triplets: {train}",
    )
    return None


def _counts(result: "MiningResult", config: "nearfar.MineConfig") -> list[str]:
    lines = [
        f"Wrote {result.triplets:,} triplets to {config.output}: {result.triplets / result.pairs:.2f} negatives for "
        f"each of {result.pairs:,} pairs.",
        f"Searched {result.documents:,} documents for {result.anchors:,} anchors: {result.candidates:,} candidates "
        f"among the {result.searched:,} nearest of each.",
    ]
    for name, share in result.dropped_shares.items():
        lines.append(f"  dropped by {flag(name)} {getattr(config, name)}: {share:.1%}")
    if result.without_negative:
        lines.append(
            f"{result.without_negative:,} pairs have no negative and are left out; --fill-random gives them random "
            "ones, --range-max searches further."
        )
    if result.filled:
        lines.append(f"{result.filled:,} negatives are random documents.")
    lines.append(f"Mean score: positives {result.positive_score:.3f}, negatives {result.negative_score:.3f}.")
    return lines


@verb()
def soup(call: Call, config: "nearfar.SoupConfig", models: tuple[str, ...]) -> None:
    """Average models, and print each one's share."""
    if len(models) < 2:
        raise NearfarError("two models or more are needed: nearfar soup MODEL MODEL ... --output FOLDER")

    result = nearfar.soup(*models, config=config)
    for one in result.models:
        score = "" if one.score is None else f"  {result.metric} {one.score:.2f}"
        call.say(f"  {one.weight:7.2%}{score}  {one.model}{'' if one.weight else '  (left out)'}")
    used = len(result.used)
    what = f"the average of {used} models" if used > 1 else f"{result.used[0].model} alone"
    score = "" if result.score is None else f": {result.metric} {result.score:.2f} on {result.evaluate_on}"
    call.say(f"Wrote {what} to {config.output}{score}")


@verb()
def static(call: Call, config: "nearfar.StaticConfig", model: str) -> None:
    """Write a static encoder."""
    made = nearfar.static(model, config)
    call.say(f"Wrote vectors of {made.tokens:,} tokens with {made.dim} dimensions to {made.folder}")
