"""``nearfar mine``: hard negatives for pairs of texts."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nearfar.cli.parsing import parse, report_kept_vectors
from nearfar.config.mining import MineConfig
from nearfar.config.values import flag

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.commands.mine.command import MiningResult


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Write triplets with hard negatives; returns the exit status."""
    config, _ = parse(MineConfig, argv, prog="nearfar mine")
    console = make_console()

    from nearfar.commands.mine.command import mine, summary_file

    try:
        result = mine(config)
    except KeyboardInterrupt:
        return report_kept_vectors(config.output, console, "mine", argv)
    lines = [*_counts(result, config), "", *_examples(result), "", f"Summary: {summary_file(config.output)}"]
    train = f"nearfar train info-nce --data {config.output} --negative-column negative --output RUN"
    console.print("\n".join([*lines, f"Train on the triplets: {train}"]), highlight=False, markup=False)
    return 0


def _counts(result: "MiningResult", config: MineConfig) -> list[str]:
    lines = [
        f"Wrote {result.triplets:,} triplets to {config.output}: {result.triplets / result.pairs:.2f} negatives for "
        f"each of {result.pairs:,} pairs.",
        f"Searched {result.documents:,} documents for {result.anchors:,} anchors: {result.candidates:,} candidates "
        f"among the {result.searched:,} nearest of each.",
    ]
    for name, share in result.dropped_shares.items():
        lines.append(f"  dropped by {flag(name)} {getattr(config, name):g}: {share:.1%}")
    if result.without_negative:
        lines.append(
            f"{result.without_negative:,} pairs have no negative and are left out; --fill-random gives them random "
            "ones, --range-max searches further."
        )
    if result.filled:
        lines.append(f"{result.filled:,} negatives are random documents.")
    lines.append(f"Mean score: positives {result.positive_score:.3f}, negatives {result.negative_score:.3f}.")
    return lines


def _examples(result: "MiningResult") -> list[str]:
    lines = ["Examples, at the quantiles 0, 25, 50, 75 and 100% of the negative's score:"]
    for example in result.examples:
        lines += [
            f"  anchor    {_short(example.anchor)}",
            f"  positive  {_short(example.positive)}  ({example.positive_score:.3f})",
            f"  negative  {_short(example.negative)}  ({example.negative_score:.3f})",
            "",
        ]
    return lines[:-1]


def _short(text: str, most: int = 100) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
