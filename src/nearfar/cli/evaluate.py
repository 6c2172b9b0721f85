"""The verbs that measure and compare: evaluate, study, reproduce, compare, geometry, report."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import nearfar
from nearfar.cli.parsing import Option
from nearfar.cli.verbs import Call, MakeConsole, verb
from nearfar.config.bounds import File
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.evaluation.results import StudyTable

DRY_RUN = Option(
    "dry_run",
    bool,
    "Do not run anything. List the cells, what is finished, and data that are missing and how to get them.",
    False,
)


@verb()
def evaluate(call: Call, config: "nearfar.EvaluateConfig", models: tuple[str, ...]) -> None:
    """Score encoders one by one and print tables."""
    if not models:
        raise NearfarError("no model given: nearfar evaluate MODEL [MODEL ...]")
    if config.output and len(models) > 1:
        raise NearfarError("--output is for the result of one model; evaluate the models one by one.")

    from nearfar.evaluation.tables.evaluation import evaluation_tables

    for model in models:
        result = nearfar.evaluate(model, config)
        for table in evaluation_tables(
            result, metrics=[config.metric], measure=config.measure, subsets=config.subsets, screen=True
        ):
            call.show(table)


@verb()
def compare(call: Call, config: "nearfar.CompareConfig", sides: tuple[str, ...]) -> None:
    """Test whether the first side is better than the others."""
    if not sides:
        raise NearfarError("no side given: nearfar compare FIRST SECOND [MORE ...], or nearfar compare SCORES.tsv")

    from nearfar.evaluation.results import ComparisonResult
    from nearfar.evaluation.tables import screen_tables
    from nearfar.evaluation.tables.comparison import queries_in_words

    result = nearfar.compare(*sides, config=config)
    for table in screen_tables(result):
        call.show(table)
    if isinstance(result, ComparisonResult) and (queries := queries_in_words(result)) is not None:
        call.say(queries.summary, *queries.lines)


@verb()
def geometry(call: Call, config: "nearfar.GeometryConfig", models: tuple[str, ...]) -> None:
    """Measure, plot or explore embedding spaces."""
    if not models:
        raise NearfarError("no model given: nearfar geometry MODEL [MODEL ...] --output FOLDER")
    config.check_models(len(models))

    from nearfar.evaluation.render import notes
    from nearfar.evaluation.results import ExplorerPage
    from nearfar.evaluation.tables import geometry_table

    result = nearfar.geometry(models, config)
    page = result if isinstance(result, ExplorerPage) else result.page
    if not isinstance(result, ExplorerPage):
        table = geometry_table(result)
        call.show(replace(table, notes=()))
        call.say(*table.notes, f"Wrote geometry.json, {', '.join(result.plots)} to {config.output}")
    if page is not None:
        call.say(*notes("explorer", page))


@verb()
def report(call: Call, config: "nearfar.ReportConfig", what: tuple[str, ...]) -> None:
    """Write a report about runs and results."""
    file = nearfar.report(what, config)
    call.say(f"Wrote the report to {file} and, as Markdown, to {file.with_suffix('.md')}")


def study(argv: list[str], make_console: MakeConsole) -> int:
    """Run a study, or only plan it (--dry-run), or write its page again (--report); returns the exit status."""
    alone = argv[:1] == ["--report"]  # the folder is where the table is and where its page is written
    return _run_study([*argv, "--output", *argv[1:]] if alone else argv, make_console)


@verb(
    DRY_RUN,
    Option(
        "report",
        File | None,
        "Alone: write page.md, table.csv, table.tex and the plots of this folder again, from its study.json.",
        None,
    ),
    name="study",
)
def _run_study(
    call: Call, config: "nearfar.StudyConfig", file: str | None, *, dry_run: bool, report: str | None
) -> int | None:
    folder = Path(config.output)
    if report is not None:
        if file is not None or folder != Path(report):
            raise NearfarError("--report FOLDER stands alone: nearfar study --report FOLDER")
        from nearfar.evaluation.results import StudyTable
        from nearfar.studies.plots import write_outputs

        table = StudyTable.load(folder / "study.json")
        write_outputs(table, folder)
    elif file is None:
        raise NearfarError("no study given: nearfar study FILE.toml --output FOLDER")
    elif dry_run:
        from nearfar.studies import dry_run as plan

        call.say(*plan(file, config).lines())
        return None
    else:
        try:
            table = nearfar.study(file, config, console=call.console)
        except KeyboardInterrupt:
            return call.stopped("; the same command goes on")
    _say_written(call, table, folder)
    return None


def _say_written(call: Call, table: "StudyTable", folder: Path) -> None:
    """Print where the models and the page of a table are, and how many of its cells have no result."""
    from nearfar.studies import MODELS

    models = folder / MODELS
    listed = [f"The run folders of the trained models are listed in {models}."] if models.is_file() else []
    note = f" {len(table.missing)} cells have no result; the page lists them." if table.missing else ""
    call.say(*listed, f"The table is in {folder / 'page.md'}.{note}")


@verb(DRY_RUN)
def reproduce(call: Call, config: "nearfar.ReproduceConfig", names: tuple[str, ...], *, dry_run: bool) -> int | None:
    """Run tables of the papers, plan them (--dry-run), or list them."""
    if not names:
        _say_tables(call, config)
        return None
    from nearfar.studies.papers import plan

    if dry_run:
        for name, planned in plan(names, config).items():
            call.say(name, *planned.lines(), "")
        return None
    try:
        tables = nearfar.reproduce(names, config, console=call.console)
    except KeyboardInterrupt:
        return call.stopped("; the same command goes on")
    for name, table in tables.items():
        _say_written(call, table, Path(config.output) / name)
    return None


def _say_tables(call: Call, config: "nearfar.ReproduceConfig") -> None:
    from nearfar.config.verbs import SCALES
    from nearfar.studies.papers import PAPERS, list_tables

    papers = list_tables(config)
    width = max(len(one.name) for tables in papers.values() for one in tables)
    call.say(f"  {'name':<{width}}  cells", f"  {'':<{width}}  {'/'.join(SCALES)}")
    for paper, tables in papers.items():
        call.say("", PAPERS[paper])
        for one in tables:
            cells = " / ".join(f"{one.cells[scale]:>3}" for scale in SCALES)
            notes = [f"reads {', '.join(one.data)}", *(f"missing: {missing}" for missing in one.missing)]
            call.say(
                f"  {one.name:<{width}}  {cells:<15}  {one.title.partition(': ')[2]}",
                *(f"  {'':<{width}}  {'':<15}  {note}" for note in notes),
            )
    call.say("", "nearfar reproduce NAME --dry-run lists the cells.")
