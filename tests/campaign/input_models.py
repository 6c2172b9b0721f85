"""Cases of model folders: weights, settings, tokenizers and modules."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.campaign import verdicts
from tests.campaign.case import Case
from tests.campaign.input_files import LIMITS, Call, changed_file, replaced_file
from tests.campaign.mutations_json import JSON, SAFETENSORS
from tests.campaign.no_files import KINDS_OF_FILE
from tests.campaign.server import Server

FILES = {
    "plain": {"model.safetensors": 220, "config.json": 220, "tokenizer.json": 130, "tokenizer_config.json": 90},
    "modules": {
        "modules.json": 120,
        "1_Pooling/config.json": 120,
        "2_Dense/config.json": 60,
        "2_Dense/model.safetensors": 60,
        "sentence_bert_config.json": 80,
        "config_sentence_transformers.json": 80,
    },
    "layers": {"1_WeightedLayerPooling/config.json": 40, "modules.json": 40},
    "words": {"1_WordWeights/config.json": 40},
    "classifier": {"config.json": 100, "model.safetensors": 60, "tokenizer_config.json": 40},
}
"""Model folder -> its files, and the number of cases of each."""


def cases(seed: int) -> Iterator[Case]:
    """Cases of model folders."""
    for model, files in FILES.items():
        for file, count in files.items():
            changes = JSON if file.endswith(".json") else SAFETENSORS
            group = f"model folder: {file}" if model != "classifier" else f"classifier folder: {file}"
            for number in range(count):
                yield changed_file(
                    seed,
                    group,
                    number,
                    f"models/{model}/{file}",
                    changes,
                    _open(model),
                    inside=f"models/{model}",
                    note=model,
                )
    for kind in KINDS_OF_FILE:
        for file in ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"):
            yield replaced_file(kind, f"models/plain/{file}", _open("plain"), inside="models/plain")
        for file in ("modules.json", "1_Pooling", "2_Dense/model.safetensors", "sentence_bert_config.json"):
            yield replaced_file(kind, f"models/modules/{file}", _open("modules"), inside="models/modules")


def _open(model: str) -> Call:
    def call(server: Server, path: Path, draw: Random) -> str:
        folder = next(place for place in path.parents if place.name == model)
        arguments = {"folder": model, "kind": model}
        done = server.function("tests.campaign.doors:open_model", arguments, cwd=folder.parent, **LIMITS)
        return verdicts.of_reader(done, [model, "the model's output is not finite"])  # the latter names the text

    return call
