"""``nearfar geometry``: measures and plots of embedding spaces, and a page to explore texts."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from nearfar.cli.parsing import ExtraOption, parse
from nearfar.config.bounds import File
from nearfar.config.geometry import GeometryConfig
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Measure, plot or explore embedding spaces; returns the exit status."""
    extra = ExtraOption(
        "models",
        tuple[File, ...],
        "Model folders, run folders, or owner/name on the Hugging Face Hub.",
        default=(),
        positional_name="MODEL ...",
    )
    config, extra_values = parse(GeometryConfig, argv, prog="nearfar geometry", extras=(extra,))
    models, console = extra_values["models"], make_console()
    if not models:
        raise NearfarError("no model given: nearfar geometry MODEL [MODEL ...] --output FOLDER")
    config.check_models(len(models))

    from nearfar.commands.geometry.command import geometry
    from nearfar.evaluation.render import to_rich
    from nearfar.evaluation.results import ExplorerPage
    from nearfar.evaluation.tables.pages import explorer_notes, geometry_notes, geometry_table

    result = geometry(models, config)
    page = result if isinstance(result, ExplorerPage) else result.page
    if not isinstance(result, ExplorerPage):
        console.print(to_rich(replace(geometry_table(result), notes=())), soft_wrap=False)
        console.print("\n".join(geometry_notes(result)), highlight=False, markup=False)
        files = ", ".join(result.plots)
        console.print(f"Wrote geometry.json, {files} to {config.output}", highlight=False, markup=False)
    if page is not None:
        console.print("\n".join(explorer_notes(page)), highlight=False, markup=False)
    return 0
