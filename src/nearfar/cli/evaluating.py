"""``nearfar evaluate``, ``compare``, ``geometry`` and ``report``: how good encoders are, in tables and files."""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from nearfar.cli.parsing import ExtraOption, parse
from nearfar.config.bounds import File
from nearfar.config.verbs import CompareConfig, EvaluateConfig, GeometryConfig, ReportConfig
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console


def evaluate_verb(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Score encoders, one after the other."""
    extra = ExtraOption(
        "models",
        tuple[File, ...],
        "Model folders, training runs' folders or groups of them, owner/name on the hub, or baselines "
        "(glove:FILE, wk:MODEL, whitening:MODEL@TEXTS, flow:MODEL@TEXTS, use).",
        default=(),
        positional_name="MODEL ...",
    )
    config, extra_values = parse(EvaluateConfig, argv, prog="nearfar evaluate", extras=(extra,))
    models, console = extra_values["models"], make_console()
    if not models:
        raise NearfarError("evaluate what? nearfar evaluate MODEL [MODEL ...]")
    if config.output and len(models) > 1:
        raise NearfarError("--output takes one model's result; evaluate the models one by one.")

    from nearfar.commands.evaluate import evaluate, evaluate_group
    from nearfar.evaluation.tables import evaluation_tables, spread_table
    from nearfar.runs.group import runs_of

    settings = asdict(config)
    metric, subsets = settings.pop("metric"), settings.pop("subsets")
    for model in models:
        if runs_of(model) is not None:
            console.print(spread_table(evaluate_group(model, **settings)), soft_wrap=False)
            continue
        for table in evaluation_tables(evaluate(model, **settings), metric=metric, subsets=subsets):
            console.print(table, soft_wrap=False)
    return 0


def compare_verb(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Test whether the first is better than the others."""
    extra = ExtraOption(
        "sides",
        tuple[File, ...],
        "Two or more: models, result files, or folders of result files (the seeds of one setting).",
        default=(),
        positional_name="SIDE ...",
    )
    config, extra_values = parse(CompareConfig, argv, prog="nearfar compare", extras=(extra,))
    sides, console = extra_values["sides"], make_console()
    if len(sides) < 2:
        raise NearfarError("compare what with what? nearfar compare FIRST SECOND [MORE ...]")

    from nearfar.commands.compare import compare
    from nearfar.evaluation.tables import comparison_table, comparisons_table

    comparison = compare(*sides, **asdict(config))
    table = comparison_table if len(sides) == 2 else comparisons_table
    console.print(table(comparison), soft_wrap=False)
    return 0


def geometry_verb(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Measure and draw the embedding space."""
    extra = ExtraOption(
        "models",
        tuple[File, ...],
        "Model folders, training runs' folders, or owner/name on the hub.",
        default=(),
        positional_name="MODEL ...",
    )
    config, extra_values = parse(GeometryConfig, argv, prog="nearfar geometry", extras=(extra,))
    models, console = extra_values["models"], make_console()
    if not models:
        raise NearfarError("the geometry of what? nearfar geometry MODEL [MODEL ...] --output FOLDER")

    from nearfar.commands.geometry.command import geometry
    from nearfar.evaluation.geometry_tables import geometry_notes, geometry_table

    result = geometry(models, **asdict(config))
    console.print(geometry_table(result), soft_wrap=False)
    console.print("\n".join(geometry_notes(result)), highlight=False, markup=False)
    console.print(f"In {config.output}: geometry.json, {', '.join(result['plots'])}", highlight=False, markup=False)
    return 0


def report_verb(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Write one page on what runs came to."""
    extra = ExtraOption(
        "what",
        tuple[File, ...],
        "Training runs' folders, groups of them, result files, folders of them (the seeds of one setting), "
        "comparison files, geometry folders.",
        default=(),
        positional_name="RUN|RESULT ...",
    )
    config, extra_values = parse(ReportConfig, argv, prog="nearfar report", extras=(extra,))
    what, console = extra_values["what"], make_console()

    from nearfar.commands.report.command import report

    settings = asdict(config)
    file = report(what, settings.pop("output"), **settings)
    console.print(f"The report is {file}, and in Markdown {file.with_suffix('.md')}", highlight=False, markup=False)
    return 0
