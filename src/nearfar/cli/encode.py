"""``nearfar encode``: the embeddings of a file of texts."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nearfar.cli.parsing import ExtraOption, parse, report_interrupt
from nearfar.config.bounds import File
from nearfar.config.encode import EncodeConfig

if TYPE_CHECKING:
    from rich.console import Console

MODEL = ExtraOption("model", File, "Model folder, or owner/name on the Hugging Face Hub.", positional_name="MODEL")


def main(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Write the embeddings of a file of texts; returns the exit status."""
    config, extra_values = parse(EncodeConfig, argv, prog="nearfar encode", extras=(MODEL,))
    console = make_console()

    from nearfar.commands.encode.command import can_be_continued, encode_parts

    try:
        result = encode_parts(extra_values["model"], config)
    except KeyboardInterrupt:
        if not can_be_continued(config):
            raise
        return report_interrupt("; finished parts are kept", console, "encode", argv, resume=config.resume)
    size = ""
    if config.quantize is not None:
        from nearfar.quantization import bytes_per_vector

        size = f" ({config.quantize}, {bytes_per_vector(result.dim, config.quantize)} bytes each)"
    where = f"to {config.output}"
    if config.sharded:
        share = f" (--shard {config.shard})" if config.shard is not None else ""
        state = "All parts are there." if result.complete else "Other parts of the folder are not finished yet."
        where = f"in {result.parts:,} {'part' if result.parts == 1 else 'parts'}{share} {where}. {state}"
    console.print(
        f"Wrote {result.rows:,} embeddings with {result.dim} dimensions{size} {where}", highlight=False, markup=False
    )
    return 0
