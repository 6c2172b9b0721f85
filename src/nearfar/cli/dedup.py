"""``nearfar dedup``: a file without near-duplicates."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nearfar.cli.parsing import parse, report_kept_vectors
from nearfar.config.mining import DedupConfig

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.commands.dedup import DedupResult

BAR = 30
"""Characters of the longest bar of the histogram."""


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Remove near-duplicates, or show a histogram to choose the threshold; returns the exit status."""
    config, _ = parse(DedupConfig, argv, prog="nearfar dedup")
    console = make_console()

    from nearfar.commands.dedup import dedup

    try:
        result = dedup(config)
    except KeyboardInterrupt:
        return report_kept_vectors(config.output, console, "dedup", argv)
    lines = [
        f"{config.input}: {result.rows:,} rows, {result.texts:,} distinct texts.",
        "",
        *_histogram(result),
        "",
        *_outcome(result, config),
    ]
    if config.threshold is None and config.output is not None:
        from nearfar.commands.encode.vectors import kept_vectors

        lines.append(
            f"The embeddings are kept in {kept_vectors(config.output)}: run the same command with --threshold T."
        )
    console.print("\n".join(lines), highlight=False, markup=False)
    return 0


def _histogram(result: "DedupResult") -> list[str]:
    if not result.histogram:
        return ["There is only one distinct text."]
    lines = ["Cosine of each text with its nearest other text, and the least similar pair of each bin:"]
    most = max(one.texts for one in result.histogram)
    for one in result.histogram:
        bar = "█" * round(BAR * one.texts / most) or ("▏" if one.texts else "")
        share = one.at_least / result.texts
        lines.append(
            f"  {one.low:5.2f}  {one.texts:>9,}  {bar:<{BAR}}  {share:6.1%} at or above {one.low:.2f}".rstrip()
        )
        if one.texts:
            lines.append(f"         {one.similarity:.3f}  {_short(one.first)}  |  {_short(one.second)}")
    return lines


def _outcome(result: "DedupResult", config: DedupConfig) -> list[str]:
    if config.threshold is None or result.kept is None:
        return ["Choose --threshold T: texts with a cosine of at least T are merged into one group."]
    removed = result.rows - result.kept
    lines = [
        f"Threshold {config.threshold:g}: {result.groups:,} groups of at least two rows, the largest of "
        f"{result.largest:,}; {removed:,} of {result.rows:,} rows ({removed / result.rows:.1%}) are near-duplicates.",
    ]
    if config.output is not None:
        lines.append(f"Wrote {result.kept:,} rows to {config.output}")
    if config.groups is not None:
        lines.append(f"Wrote the groups to {config.groups}")
    return lines


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
