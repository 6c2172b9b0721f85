"""Checks that the files of a transformers folder are complete and consistent, before and after a library reads them."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from nearfar.disk.reading import check_characters
from nearfar.types import NearfarError

SIZES = (
    *("hidden_size", "intermediate_size", "embedding_size", "vocab_size", "dim", "hidden_dim", "d_model", "d_ff"),
    *("encoder_ffn_dim", "decoder_ffn_dim", "type_vocab_size"),
)
"""Sizes in a config: each is a dimension of some weight tensor, so none exceeds the largest dimension."""
LAYERS = ("num_hidden_layers", "n_layers", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers")
COUNTS = ("num_attention_heads", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads")
MODULES = re.compile(r"(?:^|_)(?:layers?|experts|groups|group_num|blocks)$")
"""Names of settings that are numbers of modules, each of which takes memory and time."""
MAX_LABELS = 10**5
MAX_MODULES = 1000
"""More than any encoder has."""
CODE = ("attn_implementation", "experts_implementation")
"""Entries of a config that may name code on the hub."""
BUILT_IN = ("eager", "sdpa")
HEAD_WIDTHS = {"head_dim", "attention_head_size", "d_kv"}
POSITIONS = 10**7
"""Upper bound on the number of positions, more than any model has."""
LABELS = 'id2label must name each label by its number, from "0" on, as a string.'


def printable(text: str) -> str:
    """At most 300 characters of a text from a file or a library, without control characters."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text[:300])


def quoted(value: object) -> str:
    """A value of a file for a message: as Python writes it, at most 80 characters."""
    try:
        written = repr(value)
    except RecursionError:
        return f"a deeply nested {type(value).__name__}"
    return written if len(written) <= 80 else f"{written[:80]}..."


def read_json(file: Path) -> Any:
    """The content of a JSON file.

    Raises:
        NearfarError: it is missing, cannot be read, or is not valid JSON.
    """
    try:
        if file.exists() and not file.is_file():  # opening a pipe would wait for its writer
            raise NearfarError(f"{file}: is not a regular file.")
        text = file.read_text(encoding="utf-8")
        found = json.loads(text)
        check_characters(found, text)
        return found
    except FileNotFoundError as error:
        raise NearfarError(f"{file}: is missing; copy the whole model folder again.") from error
    except OSError as error:
        raise NearfarError(f"{file}: cannot be read ({error.strerror or error}).") from error
    except (ValueError, RecursionError) as error:
        raise NearfarError(f"{file}: is damaged: it is not valid JSON ({error}).") from error


def read_object(file: Path) -> dict[str, Any]:
    """The settings that a JSON file holds.

    Raises:
        NearfarError: as :func:`read_json`, or the JSON is not an object.
    """
    found = read_json(file)
    if not isinstance(found, dict):
        raise NearfarError(f"{file}: must hold a JSON object with settings, not {_kind(found)}.")
    return found


def check_links(folder: Path, root: Path) -> None:
    """Refuse links in ``folder`` to files outside the model folder ``root``, which may itself be a link.

    Links to weights (``.safetensors``) are allowed: only tensors are read from them. The local hub cache is exempt: its
    folders link to files in a folder beside them.

    Raises:
        NearfarError: a link leaves the model folder.
    """
    inside = root.resolve()
    if inside.parent.name == "snapshots" and inside.parent.parent.name.startswith("models--"):
        inside = inside.parent.parent
    try:
        links = (Path(entry) for entry in os.scandir(folder) if entry.is_symlink())
        entries = [folder, *(link for link in links if link.suffix != ".safetensors")]
        outside = next((entry for entry in entries if not entry.resolve().is_relative_to(inside)), None)
    except (OSError, RuntimeError):  # the reader of the file says what is wrong
        return
    if outside is not None:
        raise NearfarError(
            f"{outside}: is a link to {outside.resolve()}, outside the model folder, and nearfar reads no file there; "
            "replace the link by a copy."
        )


def check_config(folder: Path) -> dict[str, Any]:
    """Read config.json and check its settings.

    Raises:
        NearfarError: config.json is missing or damaged, one of its settings is invalid, or the weights are quantized.
    """
    file = folder / "config.json"
    if not file.exists():
        raise NearfarError(f"{folder}: holds no config.json, so it is no transformers encoder.")
    settings = read_object(file)
    if not isinstance(settings.get("model_type"), str):
        raise NearfarError(f"{file}: names no model_type, so it is not the config of a transformers model.")
    if settings.get("quantization_config") is not None:
        raise NearfarError(
            f"{file}: the weights are quantized (quantization_config), which nearfar does not support; use the model "
            "in full precision."
        )
    for name in ("dtype", "torch_dtype"):
        value = settings.get(name)
        known = isinstance(value, str) and isinstance(getattr(torch, value.removeprefix("torch."), None), torch.dtype)
        if value is not None and not known:
            raise NearfarError(f"{file}: {name} is {quoted(value)}, and must name a dtype of torch, such as float32.")
    for name, value in nested_entries(settings):
        if name.strip("_").removesuffix("_internal") in CODE and value not in (None, *BUILT_IN):
            raise NearfarError(
                f"{file}: {name} is {quoted(value)}, and must be {' or '.join(BUILT_IN)}, because nearfar runs no "
                "code from the hub; remove this entry."
            )
    if settings.get("transformers_weights") is not None:
        raise NearfarError(
            f"{file}: transformers_weights names other weights than model.safetensors, which nearfar does not support; "
            "remove this entry."
        )
    _check_sizes(file, settings)
    count = settings.get("num_labels")
    if type(count) is int and count > MAX_LABELS:  # transformers would make a name for each
        raise NearfarError(f"{file}: num_labels is {count}, but must be at most {MAX_LABELS}.")
    labels = settings.get("id2label")
    if labels is not None and not (isinstance(labels, dict) and all(number.isdecimal() for number in labels)):
        raise NearfarError(f"{file}: {LABELS}")
    kinds = settings.get("architectures")
    if kinds is not None and not (isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds)):
        raise NearfarError(f"{file}: architectures is {quoted(kinds)}, and must be a list of class names.")
    return settings


def check_sizes_of_weights(folder: Path, settings: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a config that describes a larger model than the weights, before memory is allocated for it.

    Tensors without elements take no bytes in the file, so they do not count.
    """
    shapes = {name: shape for name, shape in shapes.items() if 0 not in shape}
    largest = max((size for shape in shapes.values() for size in shape), default=0)
    for name in SIZES:
        if settings.get(name) is not None and settings[name] > largest:
            raise NearfarError(
                f"{folder / 'config.json'}: {name} is {settings[name]}, but all dimensions of the weights are smaller."
            )
    for name in LAYERS:
        if settings.get(name) is not None and settings[name] > len(shapes):
            raise NearfarError(
                f"{folder / 'config.json'}: {name} is {settings[name]}, but the weights are only {len(shapes)} tensors."
            )
    for name, value in nested_entries(settings):
        if MODULES.search(name) and type(value) is int and value > MAX_MODULES:
            raise NearfarError(f"{folder / 'config.json'}: {name} is {value}, but must be at most {MAX_MODULES}.")
    name = "max_position_embeddings"
    has_table = any(key.endswith("position_embeddings.weight") for key in shapes)
    if has_table and settings.get(name) is not None and settings[name] > largest:
        raise NearfarError(
            f"{folder / 'config.json'}: {name} is {settings[name]}, but all dimensions of the weights are smaller."
        )


def _check_sizes(file: Path, settings: Mapping[str, Any]) -> None:
    for name in (*SIZES, *LAYERS, *COUNTS):
        value = settings.get(name)
        least = 0 if name == "type_vocab_size" else 1
        if value is not None and (type(value) is not int or value < least):
            raise NearfarError(f"{file}: {name} is {quoted(value)}, and must be an integer of at least {least}.")
    positions = settings.get("max_position_embeddings")
    if positions is not None and (type(positions) is not int or not 1 <= positions <= POSITIONS):
        raise NearfarError(
            f"{file}: max_position_embeddings is {quoted(positions)}, and must be an integer from 1 to {POSITIONS}."
        )
    width, heads = settings.get("hidden_size"), settings.get("num_attention_heads")
    if width is not None and heads is not None and not HEAD_WIDTHS & settings.keys() and width % heads:
        raise NearfarError(f"{file}: hidden_size {width} is not a multiple of num_attention_heads {heads}.")


def nested_entries(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """All entries of the settings, including those of nested objects and of objects in lists."""
    waiting: list[Any] = [settings]
    while waiting:
        found = waiting.pop()
        if isinstance(found, Mapping):
            yield from found.items()
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found


def _kind(value: object) -> str:
    names = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
