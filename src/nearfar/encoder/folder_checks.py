"""Checks that the files of a model folder are complete, consistent and harmless, before a library reads them."""

import base64
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from nearfar.disk import check_characters
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
NO_LIMIT = -1
"""The number of positions of XLNet and T5, which have no table of them."""
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "vocab-src.json", "*.model", "*.spm", "tekken.json")
TOKENIZER_SETTINGS = ("special_tokens_map.json", "added_tokens.json")
TRANSFORMER_SETTINGS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Names of the file with the settings of sentence-transformers' module Transformer; the later ones are old."""
EXPORTED = "export.json"
"""The file that marks a folder of ``nearfar export``, whose graph gives embeddings in place of hidden states."""
ROLE_LENGTHS = ("query_length", "document_length")
"""Maximum numbers of tokens of queries and of documents, in place of ``max_seq_length``."""
HONOURED = ("max_seq_length", "do_lower_case", "unpad_inputs", *ROLE_LENGTHS)
ONLY = {
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
}
"""Settings of which nearfar supports one value; with others, texts would get a head or a chat template."""
OF_TOKENIZER = ("tokenizer_args", "processor_kwargs")
KEYWORDS = {
    ("model_args", "model_kwargs"): ("attn_implementation", "dtype", "torch_dtype", "low_cpu_mem_usage"),
    ("config_args", "config_kwargs"): ("output_hidden_states", "use_cache"),
    OF_TOKENIZER: (
        *("model_max_length", "do_lower_case", "padding_side", "truncation_side", "use_fast", "add_prefix_space"),
        *("add_bos_token", "add_eos_token", "strip_accents", "tokenize_chinese_chars", "clean_up_tokenization_spaces"),
    ),
}
"""Settings by their old and new names -> their entries that change no vector, or for the tokenizer name no file."""
LABELS = 'id2label must name each label by its number, from "0" on, as a string.'


def printable(text: str) -> str:
    """At most 300 characters of a text from a file or a library, without control characters."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[:300])


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
        content = json.loads(text)
        check_characters(content, text)
        return content
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
    content = read_json(file)
    if not isinstance(content, dict):
        names = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
        kind = names.get(type(content), "a number")
        raise NearfarError(f"{file}: must hold a JSON object with settings, not {kind}.")
    return content


def write_json(file: Path, content: Any) -> None:
    """Write a JSON file of a model folder."""
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


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
            f"{outside}: is a link to {outside.resolve()}, outside the model folder, and nearfar reads no file there; "
            "replace the link by a copy."
        )


Rule: TypeAlias = tuple[str, Callable[[Any], bool]]
"""What a setting must be, and whether a value is that."""


def whole(least: int) -> Rule:
    """An integer of at least ``least``."""
    return f"an integer of at least {least}", lambda value: type(value) is int and value >= least


def _names_dtype(value: Any) -> bool:
    import torch

    return isinstance(value, str) and isinstance(getattr(torch, value.removeprefix("torch."), None), torch.dtype)


CONFIG_RULES: dict[str, Rule] = {
    **dict.fromkeys(("dtype", "torch_dtype"), ("the name of a dtype of torch, such as float32", _names_dtype)),
    "architectures": (
        "a list of class names",
        lambda kinds: isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds),
    ),
    **dict.fromkeys((*SIZES, *LAYERS, *COUNTS), whole(1)),
    "type_vocab_size": whole(0),
    "max_position_embeddings": (
        f"an integer from 1 to {POSITIONS}",
        lambda count: type(count) is int and (1 <= count <= POSITIONS or count == NO_LIMIT),
    ),
    "num_labels": (  # transformers would make a name for each
        f"at most {MAX_LABELS}",
        lambda count: type(count) is not int or count <= MAX_LABELS,
    ),
}
LENGTH: Rule = ("an integer from 3", lambda length: type(length) is int and length >= 3)


def broken_rules(settings: Mapping[str, Any], rules: Mapping[str, Rule]) -> Iterator[str]:
    """What is wrong with settings that are not what they must be; null is as if they were left out."""
    for name, (words, holds) in rules.items():
        if (value := settings.get(name)) is not None and not holds(value):
            yield f"{name} is {quoted(value)}, and must be {words}."


def check_config(folder: Path) -> dict[str, Any]:
    """Read config.json and check its settings.

    Raises:
        NearfarError: config.json is missing or damaged, one of its settings is invalid, or the weights are quantized.
    """
    file, adapter = folder / "config.json", folder / "adapter_config.json"
    if adapter.exists():
        raise NearfarError(
            f"{adapter}: the folder holds an adapter, and nearfar does not load adapters; merge the adapter into its "
            "model and save the merged model (merge_and_unload of peft)."
        )
    if not file.exists():
        raise NearfarError(f"{folder}: holds no config.json, so it is no transformers encoder.")
    settings = read_object(file)
    for problem in _config_problems(settings):
        raise NearfarError(f"{file}: {problem}")
    return settings


def _config_problems(settings: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(settings.get("model_type"), str):
        yield "names no model_type, so it is not the config of a transformers model."
    if settings.get("quantization_config") is not None:
        yield (
            "the weights are quantized (quantization_config), which nearfar does not support; use the model in full "
            "precision."
        )
    for name, value in nested_entries(settings):
        if name.strip("_").removesuffix("_internal") in CODE and value not in (None, *BUILT_IN):
            yield (
                f"{name} is {quoted(value)}, and must be {' or '.join(BUILT_IN)}, because nearfar runs no code from "
                "the hub; remove this entry."
            )
    if settings.get("transformers_weights") is not None:
        yield (
            "transformers_weights names other weights than model.safetensors, which nearfar does not support; remove "
            "this entry."
        )
    labels = settings.get("id2label")
    if labels is not None and not (isinstance(labels, dict) and all(number.isdecimal() for number in labels)):
        yield LABELS
    yield from broken_rules(settings, CONFIG_RULES)
    width, heads = settings.get("hidden_size"), settings.get("num_attention_heads")
    if width is not None and heads is not None and not HEAD_WIDTHS & settings.keys() and width % heads:
        yield f"hidden_size {width} is not a multiple of num_attention_heads {heads}."


def check_sizes_of_weights(folder: Path, settings: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a config that describes a larger model than the weights, before memory is allocated for it.

    Tensors without elements take no bytes in the file, so they do not count.
    """
    shapes = {name: shape for name, shape in shapes.items() if 0 not in shape}
    largest = max((size for shape in shapes.values() for size in shape), default=0)
    table = ["max_position_embeddings"] if any(name.endswith("position_embeddings.weight") for name in shapes) else []
    limits = [(name, largest, "all dimensions of the weights are smaller") for name in (*SIZES, *table)]
    limits += [(name, len(shapes), f"the weights are only {len(shapes)} tensors") for name in LAYERS]
    exceeded = [(name, settings[name], why) for name, limit, why in limits if (settings.get(name) or 0) > limit]
    exceeded += [
        (name, value, f"must be at most {MAX_MODULES}")
        for name, value in nested_entries(settings)
        if MODULES.search(name) and type(value) is int and value > MAX_MODULES
    ]
    for name, value, why in exceeded:
        raise NearfarError(f"{folder / 'config.json'}: {name} is {value}, but {why}.")


class TransformerSettings(NamedTuple):
    """What the file of sentence-transformers' module Transformer says of texts before they reach the model."""

    file: Path
    max_length: int | None = None
    role_lengths: Mapping[str, int] = {}
    """Those of :data:`ROLE_LENGTHS` that the file has."""
    lower_case: bool = False
    tokenizer: Mapping[str, Any] = {}
    """Keywords for the tokenizer."""


def transformer_settings(folder: Path, *, any_length: bool = True) -> TransformerSettings:
    """Read the settings of the module Transformer in its folder.

    Args:
        folder: of the transformer.
        any_length: whether the caller has a maximum length of its own, in place of the folder's, which are not read.

    Raises:
        NearfarError: the file is damaged, or nearfar does not support a setting.
    """
    file = next((folder / name for name in TRANSFORMER_SETTINGS if (folder / name).exists()), None)
    if file is None:
        return TransformerSettings(folder / TRANSFORMER_SETTINGS[0])
    settings = {name: value for name, value in read_object(file).items() if value not in (None, {})}
    if (folder / EXPORTED).is_file():
        settings = {name: value for name, value in settings.items() if name not in ONLY}
    for problem in _transformer_problems(settings):
        raise NearfarError(f"{file}: {problem}")
    keywords: dict[str, Any] = next((settings[name] for name in OF_TOKENIZER if name in settings), {})
    lengths = {name: settings[name] for name in ("max_seq_length", *ROLE_LENGTHS) if name in settings}
    if "model_max_length" in keywords:
        lengths["max_seq_length"] = keywords["model_max_length"]
    if any_length:
        lengths = {}
    for problem in broken_rules(lengths, dict.fromkeys(lengths, LENGTH)):
        raise NearfarError(f"{file}: {problem}")
    longest = lengths.pop("max_seq_length", None)
    tokenizer = {name: value for name, value in keywords.items() if name != "trust_remote_code"}
    return TransformerSettings(file, longest, lengths, settings.get("do_lower_case", False), tokenizer)


def _transformer_problems(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        keywords = next((allowed for names, allowed in KEYWORDS.items() if name in names), None)
        if keywords is not None:
            entries = value if isinstance(value, dict) else [value]
            for entry in entries:
                if entry not in (*keywords, "trust_remote_code"):
                    yield f"{name} has {quoted(entry)}, which nearfar does not support; remove this entry."
        elif name in ONLY and value != ONLY[name]:
            yield f"{name} is {quoted(value)}, but nearfar supports only {quoted(ONLY[name])}."
        elif name not in (*HONOURED, *ONLY):
            yield f"{name} is a setting that nearfar does not support; remove this entry."
    yield from broken_rules(settings, {"do_lower_case": ("true or false", lambda value: isinstance(value, bool))})


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


def check_tokenizer_files(folder: Path) -> tuple[Path, str | None]:
    """Check that the tokenizer's files exist and are valid; return the vocabulary file and tokenizer.json's model type.

    Without these files transformers silently builds an empty tokenizer, which gives wrong vectors.

    Raises:
        NearfarError: a file is missing or damaged.
    """
    vocabulary = next((file for kind in VOCABULARIES for file in sorted(folder.glob(kind))), None)
    if vocabulary is None:
        raise NearfarError(
            f"{folder}: holds no tokenizer (tokenizer.json or a vocabulary); copy the tokenizer files from the "
            "original model."
        )
    file = folder / "tokenizer_config.json"
    if not file.exists():
        raise NearfarError(
            f"{folder}: holds no tokenizer_config.json, which says how to read {vocabulary.name}; copy it from the "
            "original model."
        )
    for problem in _tokenizer_config_problems(folder, read_object(file)):
        raise NearfarError(f"{file}: {problem}")
    for name in TOKENIZER_SETTINGS:
        if (folder / name).exists():
            read_object(folder / name)
    content = read_object(vocabulary) if vocabulary.suffix == ".json" else {}
    for problem in _tokenizer_panics(content):
        raise NearfarError(f"{vocabulary}: {problem}")
    model = content.get("model")
    kind = model.get("type") if isinstance(model, dict) and vocabulary.name == "tokenizer.json" else None
    return vocabulary, kind


def _tokenizer_config_problems(folder: Path, settings: Mapping[str, Any]) -> Iterator[str]:
    """Among them settings by which a tokenizer could read a file outside the folder.

    Old folders name files of the machine that wrote them; names of files that do not exist here are harmless.
    """
    if settings.get("init_inputs"):
        yield "init_inputs is not empty, which nearfar does not support; remove this entry."
    for name, value in settings.items():
        if isinstance(value, str) and (name.endswith("_file") or name in ("vocab", "merges")):
            leaves = Path(value).is_absolute() or ".." in Path(value).parts
            with suppress(OSError, ValueError):  # no path
                if leaves and (folder / value).is_file():
                    yield (
                        f"{name} names {value}, a file outside the model folder; remove this entry, or copy the file "
                        "into the folder."
                    )
    at_least_3 = ("a number of at least 3", lambda length: type(length) in (int, float) and length >= 3)
    yield from broken_rules(settings, {"model_max_length": at_least_3})


def _tokenizer_panics(content: Mapping[str, Any]) -> Iterator[str]:
    """What the tokenizers library would end with a panic for: a damaged character map, an undefined special token."""
    from tokenizers.normalizers import Precompiled

    for name, value in nested_entries({"normalizer": content.get("normalizer")}):
        if name == "precompiled_charsmap":
            try:
                Precompiled(base64.b64decode(value, validate=True))
            except Exception as error:  # the library raises Exception itself
                yield f"its precompiled_charsmap is damaged ({error})."
    processors: list[Any] = [content.get("post_processor")]
    for processor in processors:  # the list grows
        processors += _items(processor, "processors")
        known = processor.get("special_tokens") if isinstance(processor, dict) else None
        if isinstance(known, dict) and processor.get("type") == "TemplateProcessing":
            for piece in [*_items(processor, "single"), *_items(processor, "pair")]:
                special = piece.get("SpecialToken") if isinstance(piece, dict) else None
                token = special.get("id") if isinstance(special, dict) else None
                if isinstance(token, str) and token not in known:
                    yield f"its post_processor adds {printable(token)!r}, which it does not define."


def _items(settings: object, name: str) -> list[Any]:
    """The list of this name, or an empty one: the library says what is wrong with other values."""
    content = settings.get(name) if isinstance(settings, dict) else None
    return content if isinstance(content, list) else []
