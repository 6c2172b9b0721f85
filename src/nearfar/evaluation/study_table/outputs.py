"""The files of a study's table, and pages of several tables; all of them are made from study.json alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from nearfar.disk import write_text
from nearfar.evaluation.results import StudyTable, make_folder
from nearfar.evaluation.study_table.figures import save
from nearfar.evaluation.study_table.latex import study_latex
from nearfar.evaluation.study_table.long_table import study_csv
from nearfar.evaluation.study_table.markdown import study_markdown
from nearfar.evaluation.study_table.plots import study_plots
from nearfar.evaluation.study_table.text import escape

RECORD = "study.json"


def write_outputs(table: StudyTable, folder: str | Path) -> list[Path]:
    """Write study.json, page.md, table.csv, table.tex, and each plot as PNG and SVG; return their paths.

    All files but study.json are made from it alone: ``write_outputs(StudyTable.load(FILE), FOLDER)`` writes the same
    bytes. Each file is written completely or not at all.

    Raises:
        NearfarError: an unknown kind, axis, column or curve of a plot; the disk is full or cannot be written.
    """
    folder = Path(folder)
    make_folder(folder / RECORD)
    plots = study_plots(table)
    table.save(folder / RECORD)
    for plot in plots:
        save(plot.figure, folder / plot.name)
    names = [f"{plot.name}.svg" for plot in plots]
    texts = {
        "page.md": study_markdown(table, names),
        "table.csv": study_csv(table),
        "table.tex": study_latex(table),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    images = [f"{plot.name}.{ending}" for plot in plots for ending in ("png", "svg")]
    return [folder / name for name in (RECORD, *texts, *images)]


def paper_page(
    title: str,
    tables: Sequence[StudyTable],
    notes: str = "",
    *,
    plots: Mapping[str, Sequence[str]] | None = None,
    csv: Mapping[str, str] | None = None,
) -> str:
    """Several tables on one page in Markdown, a section for each.

    Args:
        title: the heading of the page.
        tables: the tables in order.
        notes: Markdown between heading and tables.
        plots: title of a table -> paths of its plots, relative to the page.
        csv: title of a table -> path of its CSV file, relative to the page.
    """
    parts = [f"# {escape(title)}\n"]
    if notes.strip():
        parts.append(f"{notes.strip()}\n")
    for table in tables:
        shown = (plots or {}).get(table.title, ())
        parts.append(study_markdown(table, shown, level=2, csv=(csv or {}).get(table.title)))
    return "\n".join(parts)
