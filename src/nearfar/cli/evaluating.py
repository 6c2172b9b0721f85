"""``nearfar evaluate``, ``compare``, ``geometry`` and ``report``: how good encoders are, in tables and files."""

from dataclasses import asdict
from typing import Annotated

import tyro
from rich.console import Console

from nearfar.cli.parsing import parse
from nearfar.config import CompareConfig, EvaluateConfig, GeometryConfig, ReportConfig
from nearfar.types import NearfarError


def evaluate_verb(given: list[str], console: Console) -> int:
    """Score encoders, one after the other."""

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

    models, config = parse(command, given, prog="nearfar evaluate", description=EvaluateConfig.__doc__ or "")
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


def compare_verb(given: list[str], console: Console) -> int:
    """Test whether the first is better than the others."""

    def command(
        sides: tyro.conf.Positional[tuple[str, ...]], config: Annotated[CompareConfig, tyro.conf.arg(name="")]
    ) -> tuple[tuple[str, ...], CompareConfig]:
        """Parse.

        Args:
            sides: Two or more: models, result files, or folders of result files (the seeds of one setting).
            config: How.
        """
        return sides, config

    sides, config = parse(command, given, prog="nearfar compare", description=CompareConfig.__doc__ or "")
    if len(sides) < 2:
        raise NearfarError("compare what with what? nearfar compare FIRST SECOND [MORE ...]")

    from nearfar.compare import compare
    from nearfar.evaluation.tables import comparison_table, comparisons_table

    comparison = compare(*sides, **asdict(config))
    table = comparison_table if len(sides) == 2 else comparisons_table
    console.print(table(comparison), soft_wrap=False)
    return 0


def geometry_verb(given: list[str], console: Console) -> int:
    """Measure and draw the embedding space."""

    def command(
        models: tyro.conf.Positional[tuple[str, ...]], config: Annotated[GeometryConfig, tyro.conf.arg(name="")]
    ) -> tuple[tuple[str, ...], GeometryConfig]:
        """Parse.

        Args:
            models: Model folders, training runs' folders, or owner/name on the hub.
            config: What is measured and drawn, and where to.
        """
        return models, config

    models, config = parse(command, given, prog="nearfar geometry", description=GeometryConfig.__doc__ or "")
    if not models:
        raise NearfarError("the geometry of what? nearfar geometry MODEL [MODEL ...] --output FOLDER")

    from nearfar.evaluation.geometry_tables import geometry_notes, geometry_table
    from nearfar.geometry import geometry

    result = geometry(models, **asdict(config))
    console.print(geometry_table(result), soft_wrap=False)
    console.print("\n".join(geometry_notes(result)), highlight=False, markup=False)
    console.print(f"In {config.output}: geometry.json, {', '.join(result['plots'])}", highlight=False, markup=False)
    return 0


def report_verb(given: list[str], console: Console) -> int:
    """Write one page on what runs came to."""

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

    what, config = parse(command, given, prog="nearfar report", description=ReportConfig.__doc__ or "")

    from nearfar.report import report

    settings = asdict(config)
    file = report(what, settings.pop("output"), **settings)
    console.print(f"The report is {file}, and in Markdown {file.with_suffix('.md')}", highlight=False, markup=False)
    return 0
