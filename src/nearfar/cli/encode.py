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

    from nearfar.commands.encode.command import encode
    from nearfar.commands.encode.output import is_unfinished

    try:
        texts, dim = encode(extra_values["model"], config)
    except KeyboardInterrupt:
        if not is_unfinished(config.output):
            raise
        return report_interrupt("; finished blocks are kept", console, "encode", argv, resume=config.resume)
    size = ""
    if config.quantize is not None:
        from nearfar.quantization import bytes_per_vector

        size = f" ({config.quantize}, {bytes_per_vector(dim, config.quantize)} bytes each)"
    console.print(
        f"Wrote {texts:,} embeddings with {dim} dimensions{size} to {config.output}", highlight=False, markup=False
    )
    return 0
