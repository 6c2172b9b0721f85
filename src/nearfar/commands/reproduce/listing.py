"""The list of all tables: what each shows, its cells at each scale, and what the scale ``here`` needs."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from nearfar.commands.reproduce.catalog import PAPERS, table_names
from nearfar.commands.reproduce.command import INPUTS, load_table, study_config
from nearfar.config.reproduce import SCALES, ReproduceConfig
from nearfar.config.study import Study, plan_cells

STS = tuple(f"sts{year}" for year in range(12, 17))


@dataclass(frozen=True, kw_only=True)
class ListedTable:
    """A table or figure of a paper."""

    name: str
    title: str
    cells: dict[str, int]
    """Scale -> number of cells."""
    data: tuple[str, ...]
    """Data sets that the scale ``here`` reads."""
    missing: tuple[str, ...]
    """Data and models of the scale ``here`` that are missing, with how to get them."""
    seconds: float | None
    """Estimate of the time that the scale ``here`` takes with one worker; None if the size of its data is not known."""


def list_tables(config: ReproduceConfig) -> dict[str, list[ListedTable]]:
    """Paper -> its tables and figures. Nothing is run or written."""
    return {paper: [_list_table(name, config) for name in table_names(paper)] for paper in PAPERS}


def _list_table(name: str, config: ReproduceConfig) -> ListedTable:
    from nearfar.commands.study.dry_run import dry_run

    inputs = Path(config.output) / INPUTS
    studies = {scale: load_table(name, replace(config, scale=scale), inputs=inputs) for scale in SCALES}
    here = studies["here"]
    planned = dry_run(here, study_config(name, replace(config, scale="here")))
    missing = tuple(dict.fromkeys(one for row in planned.rows for one in row.missing))
    return ListedTable(
        name=name,
        title=here.title,
        cells={scale: len(plan_cells(study)) for scale, study in studies.items()},
        data=data_sets(here),
        missing=missing,
        seconds=None if missing or planned.unknown else planned.seconds,
    )


def data_sets(study: Study) -> tuple[str, ...]:
    """The data sets that a study reads, by their names without splits; STS12 to STS16 together as ``sts12-16``."""
    found: dict[str, None] = {}
    for cell in plan_cells(study):
        for step in cell.steps:
            for setting in ("data", "evaluate_on", "task", "tasks", "pairs", "labelled", "texts"):
                value = getattr(step.config, setting, None)
                for spec in [value] if isinstance(value, str) else value or ():
                    found[str(spec).partition(":")[0]] = None
    names = list(found)
    if set(STS) <= set(names):
        names = [name for name in names if name not in STS] + ["sts12-16"]
    return tuple(sorted(names))


def describe(tables: Iterable[ListedTable], *, width: int) -> list[str]:
    """The lines of the list for the tables of one paper."""
    lines = []
    for one in tables:
        cells = " / ".join(f"{one.cells[scale]:>3}" for scale in SCALES)
        lines.append(f"  {one.name:<{width}}  {cells:<15}  {_time(one):>9}  {one.title.partition(': ')[2]}")
        lines.append(f"  {'':<{width}}  {'':<15}  {'':>9}  reads {', '.join(one.data)}")
        lines += [f"  {'':<{width}}  {'':<15}  {'':>9}  missing: {missing}" for missing in one.missing]
    return lines


def _time(one: ListedTable) -> str:
    from nearfar.commands.study.progress import duration

    return "-" if one.seconds is None else duration(one.seconds)
