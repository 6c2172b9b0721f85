"""Checks the files of a tokenizer before a library reads them, and that the tokenizer belongs to the model."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers.normalizers import Precompiled

from nearfar.encoder.folder_checks import nested_entries, printable, quoted, read_object
from nearfar.encoder.transformers_types import PreTrainedModel, PreTrainedTokenizerBase
from nearfar.types import NearfarError

VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "vocab-src.json", "*.model", "*.spm", "tekken.json")
TOKENIZER_SETTINGS = ("special_tokens_map.json", "added_tokens.json")


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
    settings = read_object(file)
    _check_tokenizer_paths(file, settings)
    longest = settings.get("model_max_length")
    if longest is not None and (type(longest) not in (int, float) or not longest >= 3):
        raise NearfarError(f"{file}: model_max_length is {quoted(longest)}, and must be a number of at least 3.")
    for name in TOKENIZER_SETTINGS:
        if (folder / name).exists():
            read_object(folder / name)
    content = read_object(found) if found.suffix == ".json" else {}
    _check_normalizers(found, content)
    _check_templates(found, content.get("post_processor"))
    model = content.get("model")
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
            f"{folder}: the tokenizer has token ids up to {needed - 1} ({quoted(token)}), but the model has embeddings "
            f"for {rows} tokens. The tokenizer belongs to another model, or its added tokens were never added to "
            "the model."
        )
    added = max(_special_ids(tokenizer), default=0)
    if added >= rows:
        raise NearfarError(
            f"{folder}: the tokenizer adds the token id {added} to each text, but the model has embeddings for {rows} "
            "tokens; copy the tokenizer files of the original model."
        )
    if rows > 2 * needed:
        raise NearfarError(
            f"{folder}: the tokenizer has {needed} tokens, but the model has embeddings for {rows}. The tokenizer "
            "belongs to another model; copy the files of the original one."
        )


def _check_tokenizer_paths(file: Path, settings: Mapping[str, Any]) -> None:
    """Refuse settings by which a tokenizer could read a file outside the folder.

    Old folders name files of the machine that wrote them; names of files that do not exist here are harmless.
    """
    if settings.get("init_inputs"):
        raise NearfarError(f"{file}: init_inputs is not empty, which nearfar does not support; remove this entry.")
    for name, value in settings.items():
        if isinstance(value, str) and (name.endswith("_file") or name in ("vocab", "merges")):
            leaves = Path(value).is_absolute() or ".." in Path(value).parts
            try:
                outside = leaves and (file.parent / value).is_file()
            except (OSError, ValueError):  # no path
                continue
            if outside:
                raise NearfarError(
                    f"{file}: {name} names {value}, a file outside the model folder; remove this entry, or copy the "
                    "file into the folder."
                )


def _check_normalizers(file: Path, content: Mapping[str, Any]) -> None:
    """Refuse a damaged character map, for which the tokenizers library ends with a panic."""
    for name, value in nested_entries({"normalizer": content.get("normalizer")}):
        if name == "precompiled_charsmap":
            try:
                Precompiled(base64.b64decode(value, validate=True))
            except Exception as error:  # the library raises Exception itself
                raise NearfarError(f"{file}: its precompiled_charsmap is damaged ({error}).") from error


def _check_templates(file: Path, processor: object) -> None:
    """Refuse a template with a special token that it does not define, for which the library ends with a panic."""
    if not isinstance(processor, dict):
        return
    for inner in _items(processor, "processors"):
        _check_templates(file, inner)
    known = processor.get("special_tokens")
    if processor.get("type") != "TemplateProcessing" or not isinstance(known, dict):
        return
    for part in ("single", "pair"):
        for piece in _items(processor, part):
            special = piece.get("SpecialToken") if isinstance(piece, dict) else None
            token = special.get("id") if isinstance(special, dict) else None
            if isinstance(token, str) and token not in known:
                raise NearfarError(f"{file}: its post_processor adds {printable(token)!r}, which it does not define.")


def _items(settings: Mapping[str, Any], name: str) -> list[Any]:
    """The list of this name, or an empty one: the library says what is wrong with other values."""
    found = settings.get(name)
    return found if isinstance(found, list) else []


def _special_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The ids that the tokenizer's post-processor adds to texts, whatever the vocabulary is."""
    processor = getattr(getattr(tokenizer, "backend_tokenizer", None), "post_processor", None)
    found: list[int] = []
    for name, value in nested_entries(json.loads(processor.__getstate__()) if processor is not None else {}):
        if name in ("ids", "sep", "cls") and isinstance(value, list):  # sep and cls: a token and its id
            found += [one for one in value if type(one) is int]
    return found
