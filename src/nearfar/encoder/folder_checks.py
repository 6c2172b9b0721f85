"""Checks that the files of a transformers folder are complete and consistent, before and after a library reads them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from nearfar.encoder.transformers_types import PreTrainedModel, PreTrainedTokenizerBase
from nearfar.types import NearfarError

SIZES = (
    *("hidden_size", "intermediate_size", "embedding_size", "vocab_size", "dim", "hidden_dim", "d_model", "d_ff"),
    *("encoder_ffn_dim", "decoder_ffn_dim", "type_vocab_size"),
)
"""Sizes in a config: each is a dimension of some weight tensor, so none exceeds the largest dimension."""
LAYERS = ("num_hidden_layers", "n_layers", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers")
COUNTS = ("num_attention_heads", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads")
CODE = ("attn_implementation", "experts_implementation")
"""Entries of a config that may name code on the hub."""
BUILT_IN = ("eager", "sdpa")
HEAD_WIDTHS = {"head_dim", "attention_head_size", "d_kv"}
POSITIONS = 10**7
"""Upper bound on the number of positions, more than any model has."""
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "vocab-src.json", "*.model", "*.spm", "tekken.json")
LABELS = 'id2label must name each label by its number, from "0" on, as a string.'
TOKENIZER_SETTINGS = ("special_tokens_map.json", "added_tokens.json")


def read_json(file: Path) -> Any:
    """The content of a JSON file.

    Raises:
        NearfarError: it is missing, cannot be read, or is not valid JSON.
    """
    try:
        if file.exists() and not file.is_file():  # opening a pipe would wait for its writer
            raise NearfarError(f"{file}: is not a regular file.")
        return json.loads(file.read_text(encoding="utf-8"))
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
            raise NearfarError(f"{file}: {name} is {value!r}, and must name a dtype of torch, such as float32.")
    for name, value in _nested_entries(settings):
        if name.strip("_").removesuffix("_internal") in CODE and value not in (None, *BUILT_IN):
            raise NearfarError(
                f"{file}: {name} is {value!r}, and must be {' or '.join(BUILT_IN)}, because nearfar runs no "
                "code from the hub; remove this entry."
            )
    _check_sizes(file, settings)
    labels = settings.get("id2label")
    if labels is not None and not (isinstance(labels, dict) and all(number.isdecimal() for number in labels)):
        raise NearfarError(f"{file}: {LABELS}")
    kinds = settings.get("architectures")
    if kinds is not None and not (isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds)):
        raise NearfarError(f"{file}: architectures is {kinds!r}, and must be a list of class names.")
    return settings


def check_sizes_of_weights(folder: Path, settings: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a config that describes a larger model than the weights, before memory is allocated for it."""
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
            raise NearfarError(f"{file}: {name} is {value!r}, and must be an integer of at least {least}.")
    positions = settings.get("max_position_embeddings")
    if positions is not None and (type(positions) is not int or not 1 <= positions <= POSITIONS):
        raise NearfarError(
            f"{file}: max_position_embeddings is {positions!r}, and must be an integer from 1 to {POSITIONS}."
        )
    width, heads = settings.get("hidden_size"), settings.get("num_attention_heads")
    if width is not None and heads is not None and not HEAD_WIDTHS & settings.keys() and width % heads:
        raise NearfarError(f"{file}: hidden_size {width} is not a multiple of num_attention_heads {heads}.")


def check_tokenizer_files(folder: Path) -> tuple[Path, str | None]:
    """Check that the tokenizer's files exist and are valid; return the vocabulary file and tokenizer.json's model type.

    Without these files transformers silently builds an empty tokenizer, which gives wrong vectors.

    Raises:
        NearfarError: a file is missing or damaged.
    """
    found = next((file for kind in VOCABULARIES for file in sorted(folder.glob(kind))), None)
    if found is None:
        raise NearfarError(
            f"{folder}: holds no tokenizer (tokenizer.json or a vocabulary); copy the tokenizer files from the "
            "original model."
        )
    file = folder / "tokenizer_config.json"
    if not file.exists():
        raise NearfarError(
            f"{folder}: holds no tokenizer_config.json, which says how to read {found.name}; copy it from the "
            "original model."
        )
    longest = read_object(file).get("model_max_length")
    if longest is not None and (type(longest) not in (int, float) or not longest >= 3):
        raise NearfarError(f"{file}: model_max_length is {longest!r}, and must be a number of at least 3.")
    for name in TOKENIZER_SETTINGS:
        if (folder / name).exists():
            read_object(folder / name)
    model = read_object(found).get("model") if found.suffix == ".json" else None
    return found, model.get("type") if isinstance(model, dict) and found.name == "tokenizer.json" else None


def check_tokenizer_kind(folder: Path, tokenizer: PreTrainedTokenizerBase, kind: str | None) -> None:
    """Check that the loaded tokenizer's model is of the type in tokenizer.json; another type splits words differently.

    Raises:
        NearfarError: tokenizer_config.json names a tokenizer class of another type, or none.
    """
    loaded = type(backend.model).__name__ if (backend := getattr(tokenizer, "backend_tokenizer", None)) else None
    if kind is not None and loaded is not None and kind != loaded:
        raise NearfarError(
            f"{folder / 'tokenizer_config.json'}: selects a {loaded} tokenizer, but tokenizer.json holds a "
            f"{kind} tokenizer; copy both files from the original model."
        )


def check_vocabulary(folder: Path, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel) -> None:
    """Check that the vocabulary has words and that each token has an embedding.

    An embedding matrix with somewhat more rows than tokens is common: rows are padded to a round number.

    Raises:
        NearfarError: the vocabulary does not belong to the model.
    """
    vocabulary = tokenizer.get_vocab()
    if not set(vocabulary) - set(tokenizer.all_special_tokens):
        raise NearfarError(
            f"{folder}: the tokenizer has only special tokens, no words; copy the original model's files."
        )
    embeddings: Any = model.get_input_embeddings()
    rows, needed = embeddings.weight.shape[0], max(vocabulary.values()) + 1
    if needed > rows:
        token = max(vocabulary, key=lambda word: vocabulary[word])
        raise NearfarError(
            f"{folder}: the tokenizer has token ids up to {needed - 1} ({token!r}), but the model has embeddings for "
            f"{rows} tokens. The tokenizer belongs to another model, or its added tokens were never added to the model."
        )
    if rows > 2 * needed:
        raise NearfarError(
            f"{folder}: the tokenizer has {needed} tokens, but the model has embeddings for {rows}. The tokenizer "
            "belongs to another model; copy the files of the original one."
        )


def _nested_entries(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """All entries of the settings, including those of nested objects."""
    for name, value in settings.items():
        yield name, value
        if isinstance(value, dict):
            yield from _nested_entries(value)


def _kind(value: object) -> str:
    names = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
