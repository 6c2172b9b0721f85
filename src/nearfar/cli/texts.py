"""``nearfar encode``, ``predict`` and ``back-translate``: from a file of texts to another file."""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from nearfar.cli.parsing import Extra, parse, stopped
from nearfar.config.bounds import File
from nearfar.config.verbs import BackTranslateConfig, EncodeConfig, PredictConfig

if TYPE_CHECKING:
    from rich.console import Console


def encode_verb(given: list[str], screen: "Callable[[], Console]") -> int:
    """Write the vectors of a file of texts."""
    model = Extra("model", File, "A folder, or owner/name on the hub.", called="MODEL")
    config, also = parse(EncodeConfig, given, prog="nearfar encode", extras=(model,))
    console = screen()

    from nearfar.commands.encode.command import encode_file
    from nearfar.commands.encode.output import is_unfinished

    settings = asdict(config)
    try:
        shape = encode_file(also["model"], settings.pop("input"), settings.pop("output"), **settings)
    except KeyboardInterrupt:
        if not is_unfinished(config.output):
            raise
        return stopped("; the blocks that were done are kept", console, "encode", given, resume=config.resume)
    console.print(f"{shape[0]:,} vectors of {shape[1]} numbers in {config.output}", highlight=False, markup=False)
    return 0


def predict_verb(given: list[str], screen: "Callable[[], Console]") -> int:
    """Write what a classifier says of a file of texts."""
    about = "A run of nearfar finetune, its model folder, or any sequence classifier of transformers."
    model = Extra("model", File, about, called="MODEL")
    config, also = parse(PredictConfig, given, prog="nearfar predict", extras=(model,))

    from nearfar.commands.predict import predict_file

    settings = asdict(config)
    rows = predict_file(also["model"], settings.pop("input"), settings.pop("output"), **settings)
    screen().print(f"{rows:,} rows with what was predicted in {config.output}", highlight=False, markup=False)
    return 0


def back_translate_verb(given: list[str], screen: "Callable[[], Console]") -> int:
    """Write sentences and their back-translations."""
    config, _ = parse(BackTranslateConfig, given, prog="nearfar back-translate")

    from nearfar.commands.back_translate.command import back_translate

    settings = asdict(config)
    file = back_translate(settings.pop("input"), settings.pop("output"), **settings)
    screen().print(f"Sentences and their back-translations are in {file}", highlight=False, markup=False)
    return 0
