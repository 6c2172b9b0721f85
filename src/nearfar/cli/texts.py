"""``nearfar encode``, ``predict`` and ``back-translate``: from a file of texts to another file."""

from dataclasses import asdict
from typing import Annotated

import tyro
from rich.console import Console

from nearfar.cli.parsing import parse, stopped
from nearfar.config import BackTranslateConfig, EncodeConfig, PredictConfig


def encode_verb(given: list[str], console: Console) -> int:
    """Write the vectors of a file of texts."""

    def command(
        model: tyro.conf.Positional[str], config: Annotated[EncodeConfig, tyro.conf.arg(name="")]
    ) -> tuple[str, EncodeConfig]:
        """Parse.

        Args:
            model: A folder, or owner/name on the hub.
            config: What is encoded, and where to.
        """
        return model, config

    model, config = parse(command, given, prog="nearfar encode", description=EncodeConfig.__doc__ or "")

    from nearfar.encode import encode_file
    from nearfar.encode_output import is_unfinished

    settings = asdict(config)
    try:
        shape = encode_file(model, settings.pop("input"), settings.pop("output"), **settings)
    except KeyboardInterrupt:
        if not is_unfinished(config.output):
            raise
        return stopped("; the blocks that were done are kept", console, "encode", given, resume=config.resume)
    console.print(f"{shape[0]:,} vectors of {shape[1]} numbers in {config.output}", highlight=False, markup=False)
    return 0


def predict_verb(given: list[str], console: Console) -> int:
    """Write what a classifier says of a file of texts."""

    def command(
        model: tyro.conf.Positional[str], config: Annotated[PredictConfig, tyro.conf.arg(name="")]
    ) -> tuple[str, PredictConfig]:
        """Parse.

        Args:
            model: A run of nearfar finetune, its model folder, or any sequence classifier of transformers.
            config: What is labelled, and where to.
        """
        return model, config

    model, config = parse(command, given, prog="nearfar predict", description=PredictConfig.__doc__ or "")

    from nearfar.predict import predict_file

    settings = asdict(config)
    rows = predict_file(model, settings.pop("input"), settings.pop("output"), **settings)
    console.print(f"{rows:,} rows with what was predicted in {config.output}", highlight=False, markup=False)
    return 0


def back_translate_verb(given: list[str], console: Console) -> int:
    """Write sentences and their back-translations."""

    def command(config: Annotated[BackTranslateConfig, tyro.conf.arg(name="")]) -> BackTranslateConfig:
        """Parse.

        Args:
            config: What is translated, by which models, and where to.
        """
        return config

    doc = BackTranslateConfig.__doc__ or ""
    config = parse(command, given, prog="nearfar back-translate", description=doc)

    from nearfar.back_translate import back_translate

    settings = asdict(config)
    file = back_translate(settings.pop("input"), settings.pop("output"), **settings)
    console.print(f"Sentences and their back-translations are in {file}", highlight=False)
    return 0
