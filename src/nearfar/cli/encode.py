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
    if config.sharded:
        return _encode_shards(extra_values["model"], config, argv, console)

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


def _encode_shards(model: str, config: EncodeConfig, argv: list[str], console: "Console") -> int:
    """Write a folder of parts; returns the exit status."""
    from nearfar.commands.encode.command import BLOCK
    from nearfar.commands.encode.shards.command import encode_shards, is_unfinished_folder

    try:
        found = encode_shards(model, config, block=BLOCK, progress=True)
    except KeyboardInterrupt:
        if not is_unfinished_folder(config.output):
            raise
        return report_interrupt("; finished parts are kept", console, "encode", argv, resume=config.resume)
    share = f" (--shard {config.shard})" if config.shard is not None else ""
    state = "All parts are there." if found.complete else "Other parts of the folder are not finished yet."
    console.print(
        f"Wrote {found.rows:,} embeddings with {found.dim} dimensions in {found.parts:,} "
        f"{'part' if found.parts == 1 else 'parts'}{share} to {config.output}. {state}",
        highlight=False,
        markup=False,
    )
    return 0
