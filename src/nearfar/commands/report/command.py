"""``nearfar report``: sources are read and compared, and written as one page in HTML and Markdown."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nearfar.commands.report.sources import Sources
from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import ReportConfig
from nearfar.data.paths import as_path
from nearfar.disk import check_output_path, path_errors, refuse_existing, refuse_overwriting_inputs, write_text
from nearfar.evaluation.comparison import compare_pairwise, compare_runs
from nearfar.evaluation.report import GENERATOR, EvaluatedModel, ReportInputs, compose, to_html, to_markdown
from nearfar.evaluation.report.inputs import name_without_source
from nearfar.evaluation.results import ComparisonResult, PairwiseResult, make_folder
from nearfar.types import NearfarError

MAX_COMPARED = 6
"""With --compare auto, the largest number of sides that are compared; each pair of sides takes some seconds."""


@accepts_settings(ReportConfig)
@path_errors()
def report(what: str | Path | Sequence[str | Path], config: ReportConfig, *, progress: bool = True) -> Path:
    """Write one self-contained HTML file about runs and results, and a Markdown file beside it.

    Settings can be given by name: ``report(["runs/a", "b.json"], output="report.html")``; see
    :class:`nearfar.ReportConfig`. The same files give the same page, byte for byte.

    Args:
        what: run folders, result files, folders of result files (the seeds of one method), comparison files, geometry
            files or their folders. Result files that are named one by one are the seeds of one method
            if they are in one folder and their names differ only in the training seed at the end.
        config: the settings.
        progress: show progress bars.

    Returns:
        The path of the HTML file.

    Raises:
        NearfarError: a source is damaged or cannot be shown; sides that cannot be compared, with ``compare`` ``yes``;
            an output that cannot be written.
    """
    file = _check_output(config.output, overwrite=config.overwrite)
    paths = [as_path(one) for one in ([what] if isinstance(what, str | Path) else what)]
    if not paths:
        raise NearfarError("nothing to report on: name runs, result files, comparisons or geometries.")
    opened = Sources()
    for path in dict.fromkeys(paths):
        opened.add(path)
    for written in (file, file.with_suffix(".md")):
        refuse_overwriting_inputs(written, opened.read)
    found = opened.collect()
    automatic = 2 <= len(found.sides) <= MAX_COMPARED and not found.comparisons
    computed = None
    if config.compare == "yes" or (config.compare == "auto" and automatic):
        try:
            computed = _compare(found.sides, config, progress=progress)
        except NearfarError as error:
            if config.compare == "yes":
                raise
            found = replace(found, missing=[*found.missing, f"No comparison was computed: {error}"])
    page = compose(found, title=config.title or _title(found), aggregate=config.aggregate, computed=computed)
    write_text(file, to_html(page))
    write_text(file.with_suffix(".md"), to_markdown(page))
    return file


def _compare(
    sides: Sequence[EvaluatedModel], config: ReportConfig, *, progress: bool
) -> ComparisonResult | PairwiseResult:
    if len(sides) < 2:
        raise NearfarError(f"--compare yes: a comparison needs two evaluated sides, and there are {len(sides)}.")
    runs, aggregate = [side.runs for side in sides], config.aggregate
    if len(runs) == 2:
        return compare_runs(*runs, aggregate=aggregate, resamples=config.resamples, seed=config.seed, progress=progress)
    return compare_pairwise(runs, aggregate=aggregate, resamples=config.resamples, seed=config.seed, progress=progress)


def _title(found: ReportInputs) -> str:
    geometries = (name for _, result in found.geometries for name in result.models)
    names = list(
        dict.fromkeys([*map(name_without_source, found.sides), *(run.group_name for run in found.runs), *geometries])
    )
    more = f" and {len(names) - 3} more" if len(names) > 4 else ""
    return f"Report: {', '.join(names[: 3 if more else 4])}{more}" if names else "Report: comparisons"


def _check_output(output: str | Path, *, overwrite: bool) -> Path:
    file = Path(output)
    if file.suffix != ".html":
        raise NearfarError(f"--output {file}: a report ends in .html (its Markdown is written beside it).")
    make_folder(file)
    for written in (file, file.with_suffix(".md")):
        check_output_path(written)
    if not _is_report(file):
        refuse_existing([file], overwrite=overwrite, what="exists and is not a report of nearfar")
        refuse_existing([file.with_suffix(".md")], overwrite=overwrite, what="exists without a report beside it")
    return file


def _is_report(file: Path) -> bool:
    try:
        with file.open(encoding="utf-8") as stream:
            return GENERATOR in stream.read(2**12)
    except (OSError, UnicodeDecodeError):
        return False
