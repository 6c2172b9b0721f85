"""Checks that the files of a model folder are complete, consistent and harmless, before a library reads them."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from msgspec import Meta, Struct

from nearfar.disk import read_json
from nearfar.types import NearfarError
from nearfar.validation import convert, format_value

Settings = TypeVar("Settings")
COPY_AGAIN = "Copy the whole model folder again."
MODULES = re.compile(r"(?:^|_)(?:layers?|experts|groups|group_num|blocks)$")
"""Names of settings that are numbers of modules, each of which takes memory and time."""
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
MAX_MODULES, MAX_LABELS = 1000, 10**5
"""More than any model has."""
CODE = ("attn_implementation", "experts_implementation")
"""Entries of a config that may name code on the hub."""
BUILT_IN = ("eager", "sdpa")
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "vocab-src.json", "*.model", "*.spm", "tekken.json")
TRANSFORMER_SETTINGS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Names of the file with the settings of sentence-transformers' module Transformer; the later ones are old."""
ADAPTER = "adapter_config.json"
"""The file with the settings of an adapter of peft."""
ROUTER = "router_config.json"
"""The file of a folder with one encoder for queries and another for documents, as sentence-transformers' Router."""
EXPORTED = "export.json"
"""The file that marks a folder of ``nearfar export``, whose graph gives embeddings in place of hidden states."""
ONLY = {
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
}
"""Settings of which nearfar supports one value; with others, texts would get a head, as in classifiers, or a
chat template."""
Length: TypeAlias = Annotated[int, Meta(ge=3)]
KEYWORDS = (
    *("attn_implementation", "dtype", "torch_dtype", "low_cpu_mem_usage", "output_hidden_states", "use_cache"),
    *("model_max_length", "do_lower_case", "padding_side", "truncation_side", "use_fast", "add_prefix_space"),
    *("add_bos_token", "add_eos_token", "strip_accents", "tokenize_chinese_chars", "clean_up_tokenization_spaces"),
    "trust_remote_code",
)
"""Keywords that are known: those of model and config change no vector here, those of the tokenizer name no file."""


def read_settings(file: Path, kind: type[Settings]) -> Settings:
    """The content of a JSON file, as a ``kind``.

    Raises:
        NearfarError: it is missing, cannot be read, is not valid JSON, or does not fit.
    """
    return convert(read_json(file, otherwise=COPY_AGAIN), kind, source=file)


def read_object(file: Path) -> dict[str, Any]:
    """The settings that a JSON file holds.

    Raises:
        NearfarError: as :func:`read_settings`.
    """
    return read_settings(file, dict[str, Any])


def write_json(file: Path, content: Any) -> None:
    """Write a JSON file of a model folder."""
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def has_roles(folder: Path) -> bool:
    """Whether a model folder has one encoder for queries and another for documents."""
    return (folder / ROUTER).is_file()


def holds_classifier(folder: Path) -> bool:
    """Whether a folder holds a sequence classifier of transformers, and no encoder of sentence-transformers.

    Raises:
        NearfarError: as :func:`read_object`.
    """
    if (folder / "modules.json").is_file() or not (folder / "config.json").is_file():
        return False
    kinds = read_object(folder / "config.json").get("architectures")
    return isinstance(kinds, list) and any(str(kind).endswith("ForSequenceClassification") for kind in kinds)


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
            f"{outside}: is a link to {outside.resolve()}, outside the model folder; copy the file here."
        )


def check_config(folder: Path) -> dict[str, Any]:
    """Read config.json and refuse what transformers would follow: code, other weights, and endless lists of modules.

    Raises:
        NearfarError: config.json is missing or damaged, or has such a setting; the weights are quantized or adapters.
    """
    file, adapter = folder / "config.json", folder / ADAPTER
    if adapter.exists():
        opened = "nearfar opens an adapter as a sentence encoder alone, and in a folder without config.json"
        raise NearfarError(f"{adapter}: {opened}; merge the adapter into its model (by peft: merge_and_unload).")
    if not file.exists():
        raise NearfarError(f"{folder}: holds no config.json, so it is no transformers encoder.")
    settings = read_object(file)
    if not isinstance(settings.get("model_type"), str):
        raise NearfarError(f"{file}: names no model_type, so it is not the config of a transformers model.")
    for name in ("quantization_config", "transformers_weights"):
        if settings.get(name) is not None:
            raise NearfarError(f"{file}: has {name}; nearfar opens full-precision weights in model.safetensors alone.")
    for name, value in nested_entries(settings):
        if name.strip("_").removesuffix("_internal") in CODE and value not in (None, *BUILT_IN):
            raise NearfarError(f"{file}: {name} is {format_value(value)}; remove it: code from the hub is never run.")
        least = 1 if name in SIZES else -inf
        most = MAX_MODULES if MODULES.search(name) else MAX_LABELS if name == "num_labels" else inf
        if type(value) is int and not least <= value <= most:
            bound = f"at least {least}" if value < least else f"at most {most}"
            raise NearfarError(f"{file}: {name} is {value}, but must be {bound}.")
    return settings


def nested_entries(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """All entries of the settings, including those of nested objects and of objects in lists."""
    waiting: list[Any] = [settings]
    while waiting:
        content = waiting.pop()
        if isinstance(content, Mapping):
            yield from content.items()
            waiting += content.values()
        elif isinstance(content, list):
            waiting += content


class TransformerSettings(Struct, frozen=True):
    """What sentence-transformers' module Transformer says of texts before they reach the model."""

    max_seq_length: Length | None = None
    query_length: Length | None = None
    document_length: Length | None = None
    do_lower_case: bool = False
    unpad_inputs: Any = None
    model_args: dict[str, Any] = {}
    model_kwargs: dict[str, Any] = {}
    config_args: dict[str, Any] = {}
    config_kwargs: dict[str, Any] = {}
    tokenizer_args: dict[str, Any] = {}
    processor_kwargs: dict[str, Any] = {}

    @property
    def tokenizer(self) -> dict[str, Any]:
        """Keywords for the tokenizer."""
        keywords = self.tokenizer_args or self.processor_kwargs
        return {name: value for name, value in keywords.items() if name != "trust_remote_code"}

    @property
    def role_lengths(self) -> dict[str, int]:
        """Maximum numbers of tokens of queries and of documents, in place of that of other texts, where it has them."""
        lengths = {"query_length": self.query_length, "document_length": self.document_length}
        return {name: length for name, length in lengths.items() if length is not None}


def transformer_settings(folder: Path, *, classifier: bool = False) -> TransformerSettings:
    """Read the settings of the module Transformer in its folder; with ``classifier`` any of :data:`ONLY`.

    Cross-encoders of sentence-transformers have others; whether there is a classifier, config.json says.

    Raises:
        NearfarError: the file is damaged, or nearfar does not support a setting.
    """
    file = next((folder / name for name in TRANSFORMER_SETTINGS if (folder / name).exists()), None)
    if file is None:
        return TransformerSettings()
    settings = {name: value for name, value in read_object(file).items() if value not in (None, {})}
    for name, supported in ONLY.items():
        if settings.pop(name, supported) != supported and not classifier and not (folder / EXPORTED).is_file():
            raise NearfarError(f"{file}: nearfar supports only the value {format_value(supported)} of {name}.")
    found = convert(settings, TransformerSettings, source=file)
    keywords = [*found.model_args, *found.model_kwargs, *found.config_args, *found.config_kwargs, *found.tokenizer]
    unknown = [name for name in keywords if name not in KEYWORDS] + [*settings.keys() - {*found.__struct_fields__}]
    if unknown:
        raise NearfarError(f"{file}: has {format_value(unknown[0])}, which nearfar does not support; remove it.")
    return found


def check_tokenizer_files(folder: Path) -> Path:
    """Check that the tokenizer's files exist and lead nowhere else; return the vocabulary file.

    Without these files transformers silently builds an empty tokenizer, which gives wrong vectors. Settings by which a
    tokenizer could read a file outside the folder are refused; old folders name files of the machine that wrote them,
    and names of files that do not exist here are harmless.

    Raises:
        NearfarError: a file is missing or damaged, or leads out of the folder.
    """
    vocabulary = next((file for kind in VOCABULARIES for file in sorted(folder.glob(kind))), None)
    file = folder / "tokenizer_config.json"
    if vocabulary is None or not file.exists():
        missing = file.name if vocabulary else "tokenizer (tokenizer.json or a vocabulary)"
        raise NearfarError(f"{folder}: holds no {missing}; copy the tokenizer files from the original model.")
    settings = read_object(file)
    for name, value in settings.items():
        if isinstance(value, str) and (name.endswith("_file") or name in ("vocab", "merges")):
            outside = os.path.isabs(value) or ".." in Path(value).parts
            if outside and os.path.isfile(os.path.join(folder, value)):
                raise NearfarError(f"{file}: {name} names {value}, a file outside the model folder; remove this entry.")
    length = settings.get("model_max_length")
    if settings.get("init_inputs") or not (length is None or (type(length) in (int, float) and length >= 3)):
        problem = f"model_max_length is {format_value(length)}, and must be from 3; init_inputs must be left out"
        raise NearfarError(f"{file}: {problem}.")
    return vocabulary
