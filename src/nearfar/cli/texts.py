"""``nearfar encode``, ``predict`` and ``back-translate``: from a file of texts to another file."""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from nearfar.cli.parsing import ExtraOption, parse, report_interrupt
from nearfar.config.bounds import File
from nearfar.config.verbs import BackTranslateConfig, EncodeConfig, PredictConfig

if TYPE_CHECKING:
    from rich.console import Console


def encode_verb(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Write the vectors of a file of texts."""
    model = ExtraOption("model", File, "A folder, or owner/name on the hub.", positional_name="MODEL")
    config, extra_values = parse(EncodeConfig, argv, prog="nearfar encode", extras=(model,))
    console = make_console()

    from nearfar.commands.encode.command import encode_file
    from nearfar.commands.encode.output import is_unfinished

    settings = asdict(config)
    try:
        shape = encode_file(extra_values["model"], settings.pop("input"), settings.pop("output"), **settings)
    except KeyboardInterrupt:
        if not is_unfinished(config.output):
            raise
        return report_interrupt("; the blocks that were done are kept", console, "encode", argv, resume=config.resume)
    console.print(f"{shape[0]:,} vectors of {shape[1]} numbers in {config.output}", highlight=False, markup=False)
    return 0


def predict_verb(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Write what a classifier says of a file of texts."""
    about = "A run of nearfar finetune, its model folder, or any sequence classifier of transformers."
    model = ExtraOption("model", File, about, positional_name="MODEL")
    config, extra_values = parse(PredictConfig, argv, prog="nearfar predict", extras=(model,))

    from nearfar.commands.predict import predict_file

    settings = asdict(config)
    rows = predict_file(extra_values["model"], settings.pop("input"), settings.pop("output"), **settings)
    make_console().print(f"{rows:,} rows with what was predicted in {config.output}", highlight=False, markup=False)
    return 0


def back_translate_verb(argv: list[str], make_console: "Callable[[], Console]") -> int:
    """Write sentences and their back-translations."""
    config, _ = parse(BackTranslateConfig, argv, prog="nearfar back-translate")

    from nearfar.commands.back_translate.command import back_translate

    settings = asdict(config)
    file = back_translate(settings.pop("input"), settings.pop("output"), **settings)
    make_console().print(f"Sentences and their back-translations are in {file}", highlight=False, markup=False)
    return 0
