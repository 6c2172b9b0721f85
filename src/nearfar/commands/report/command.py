"""One report put together: sources opened, compared, written. What ``nearfar report`` and notebooks call."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from nearfar.commands.report.sources import Sources
from nearfar.data.paths import as_path
from nearfar.disk import check_output_path, path_errors, refuse_existing, refuse_overwriting_inputs, write_text
from nearfar.evaluation import results
from nearfar.evaluation.comparison import check_comparison, compare_pairwise, compare_runs
from nearfar.evaluation.correlation import Aggregate
from nearfar.evaluation.report import EvaluatedModel, ReportInputs, compose, to_html, to_markdown
from nearfar.evaluation.report.html import GENERATOR
from nearfar.evaluation.report.inputs import name_without_source
from nearfar.types import NearfarError

MAX_COMPARED = 6
"""So many sides are compared without being asked to; each two of them take some seconds."""


@path_errors()
def report(
    what: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    title: str | None = None,
    compare: Literal["auto", "yes", "no"] = "auto",
    aggregate: Aggregate = "all",
    resamples: int = 10_000,
    seed: int = 0,
    overwrite: bool = False,
    progress: bool = True,
) -> Path:
    """Write one HTML file, which needs nothing else, and a Markdown file beside it, on what runs came to.

    Args:
        what: training runs' folders, groups of them, result files, folders of them (the seeds of one setting),
            comparison files, geometry files or their folders. Result files that are named one by one are the seeds of
            one setting where they lie in one folder and their names agree but for the training seed at the end.
        output: the file to write, ending in .html.
        title: of the page.
        compare: test each two of the evaluated sides; ``auto`` does where there are 2 to 6 and no comparison is named.
        aggregate: how a task with subsets becomes one number: ``all``, ``mean`` or ``wmean``.
        resamples: bootstrap resamples of the comparison.
        seed: of the bootstrap.
        overwrite: replace ``output`` even if it is no report of nearfar's.
        progress: show progress bars.

    Returns:
        The HTML file. The same files give the same page, to the byte.

    Raises:
        NearfarError: something is damaged, or nothing that a report can show; sides that cannot be compared, where that
            was asked for; an output that cannot be written.
    """
    file = _check_output(output, overwrite=overwrite)
    check_comparison(aggregate, resamples, seed)
    paths = [as_path(one) for one in ([what] if isinstance(what, str | Path) else what)]
    if not paths:
        raise NearfarError("a report on what? Name runs, groups, result files, comparisons or geometries.")
    opened = Sources()
    for path in dict.fromkeys(paths):
        opened.add(path)
    for written in (file, file.with_suffix(".md")):
        refuse_overwriting_inputs(written, opened.read)
    found = opened.collect()
    wanted = 2 <= len(found.sides) <= MAX_COMPARED and not found.comparisons
    computed = None
    if compare == "yes" or (compare == "auto" and wanted):
        try:
            computed = _compare(found.sides, aggregate=aggregate, resamples=resamples, seed=seed, progress=progress)
        except NearfarError as error:
            if compare == "yes":
                raise
            found = replace(found, missing=[*found.missing, f"No comparison was computed: {error}"])
    page = compose(found, title=title or _title(found), aggregate=aggregate, computed=computed)
    write_text(file, to_html(page))
    write_text(file.with_suffix(".md"), to_markdown(page))
    return file


def _compare(sides: Sequence[EvaluatedModel], **settings: Any) -> results.Result:
    if len(sides) < 2:
        raise NearfarError(f"--compare yes: {len(sides)} evaluated sides were named; a comparison needs two.")
    if len(sides) == 2:
        return compare_runs(sides[0].runs, sides[1].runs, **settings)
    return compare_pairwise([side.runs for side in sides], **settings)


def _title(found: ReportInputs) -> str:
    geometries = (name for _, result in found.geometries for name in result["models"])
    names = list(
        dict.fromkeys([*map(name_without_source, found.sides), *(run.group_name for run in found.runs), *geometries])
    )
    more = f" and {len(names) - 3} more" if len(names) > 4 else ""
    return f"Report: {', '.join(names[: 3 if more else 4])}{more}" if names else "Report: comparisons"


def _check_output(output: str | Path, *, overwrite: bool) -> Path:
    file = Path(output)
    if file.suffix != ".html":
        raise NearfarError(f"--output {file}: a report ends in .html (its Markdown is written beside it).")
    results.make_folder(file)
    for written in (file, file.with_suffix(".md")):
        check_output_path(written)
    if not _is_report(file):
        refuse_existing([file], overwrite=overwrite, what="is there and is no report of nearfar's")
        refuse_existing([file.with_suffix(".md")], overwrite=overwrite, what="is there, and no report beside it")
    return file


def _is_report(file: Path) -> bool:
    try:
        with file.open(encoding="utf-8") as stream:
            return GENERATOR in stream.read(2**12)
    except (OSError, UnicodeDecodeError):
        return False
