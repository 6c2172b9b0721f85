"""Calls the loaders of transformers and sentence-transformers, and checks what they give. No other module calls them.

Every call passes ``trust_remote_code=False``, so that no code from a model folder runs and no loader asks on the
terminal for permission. An exception of a loader becomes a one-sentence error that names a file.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, normalizers
from torch import nn

from nearfar.encoder import folder_checks as checks
from nearfar.encoder.folder_checks import quoted
from nearfar.encoder.weights import check_weights
from nearfar.runtime.memory import paused
from nearfar.types import NearfarError

with paused():
    from transformers import (
        AttentionInterface,
        AutoConfig,
        AutoModel,
        AutoModelForSeq2SeqLM,
        AutoModelForSequenceClassification,
        AutoModelForTextEncoding,
        AutoTokenizer,
        PretrainedConfig,
        PreTrainedModel,
        PreTrainedTokenizerBase,
    )
    from transformers.models.auto import configuration_auto, modeling_auto
    from transformers.utils import logging as transformers_logging

__all__ = ["AttentionInterface", "PreTrainedModel", "PreTrainedTokenizerBase", "PretrainedConfig"]
"""transformers' classes for the other modules: the import takes less time while the garbage collector is paused."""

_CLASS_NAME = re.compile(r"\b\w+(?:Error|Exception): ")
LONGEST_REASON = 300
"""Maximum number of characters that an error quotes from an exception."""
MAX_GROWTH, FREE_ELEMENTS = 4, 2**24
"""A model may have this many times the numbers in its file, and so many more: tied weights are stored once."""
TOKENIZER_PACKAGES = ("sentencepiece", "sacremoses", "protobuf", "tiktoken")
REFUSED_TYPES = {
    "markuplm": "MarkupLM reads web pages through a processor, which sentence-transformers cannot save with the model",
    "mra": "the attention of MRA needs a kernel for CUDA, without which transformers computes zeros",
    "reformer": "the attention of Reformer hashes by random numbers, so that a text has no vector of its own",
}
"""Model types that transformers opens, but that are of no use here, and why."""
MODELS: dict[str, tuple[Any, str]] = {
    "encoder": (AutoModel, "MODEL_MAPPING_NAMES"),
    "sequence classifier": (AutoModelForSequenceClassification, "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES"),
    "translation model": (AutoModelForSeq2SeqLM, "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES"),
}
"""Kind of model -> transformers' auto class, and the name of its table from model type to class name."""


def load_config(folder: Path, *, kind: str = "encoder") -> PretrainedConfig:
    """The config of a transformers folder, for a model of one of the kinds in :data:`MODELS`.

    Raises:
        NearfarError: config.json or the weights are missing, damaged or inconsistent; or the model needs custom code.
    """
    settings = checks.check_config(folder)
    checks.check_sizes_of_weights(folder, settings, check_weights(folder))
    _refuse_custom_code(folder, settings, kind)
    with opening(folder / "config.json"), quiet():
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    if type(config) not in MODELS[kind][0]._model_mapping:
        raise NearfarError(
            f"{folder / 'config.json'}: transformers has no {kind} of the model type {quoted(settings['model_type'])}; "
            "choose another model."
        )
    if kind == "encoder" and config.is_encoder_decoder and _auto_class(config, kind) is AutoModel:
        raise NearfarError(
            f"{folder / 'config.json'}: {quoted(settings['model_type'])} is an encoder with a decoder, and nearfar "
            "trains encoders alone (of T5, MT5 and UMT5 it takes the encoder); choose another model."
        )
    if settings["model_type"] in REFUSED_TYPES:
        raise NearfarError(f"{folder / 'config.json'}: {REFUSED_TYPES[settings['model_type']]}; choose another model.")
    config.return_dict = True  # changes only the type of the output, no vector
    if hasattr(config, "auto_map"):  # otherwise it would be saved again
        del config.auto_map
    return config


def load_model(folder: Path, config: PretrainedConfig, *, kind: str, **settings: Any) -> tuple[Any, dict[str, Any]]:
    """The model of a transformers folder, and transformers' loading info for :func:`check_complete`.

    Raises:
        NearfarError: transformers cannot open it, or it is much larger than its weights.
    """
    _check_parameters(folder, config, kind)
    with opening(folder / "config.json"), quiet():  # names config.json, because the weights have been checked
        return _auto_class(config, kind).from_pretrained(
            folder,
            config=config,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **settings,
        )


def _auto_class(config: PretrainedConfig, kind: str) -> Any:
    """The class that loads a model: of the kind in :data:`MODELS`, or for T5 and its like that of the encoder alone."""
    auto, own = MODELS[kind][0], AutoModelForTextEncoding._model_mapping.get(type(config), None)
    return (
        AutoModelForTextEncoding if auto is AutoModel and own not in (None, auto._model_mapping[type(config)]) else auto
    )


def load_tokenizer(folder: Path, *, fast: bool = True) -> PreTrainedTokenizerBase:
    """The tokenizer of a transformers folder, as the module Transformer of sentence-transformers sets it.

    Raises:
        NearfarError: its files are missing or damaged; ``fast`` is set and it is not a fast tokenizer; or
            tokenizer_config.json names a tokenizer of another type than that in tokenizer.json.
    """
    vocabulary, kind = checks.check_tokenizer_files(folder)
    settings = checks.transformer_settings(folder)
    with opening(vocabulary), quiet():
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False, **settings.tokenizer
        )
    if fast and not tokenizer.is_fast:
        raise NearfarError(f"{folder}: has no fast tokenizer (tokenizer.json), which nearfar needs.")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    loaded = type(backend.model).__name__ if backend else None
    if kind is not None and loaded is not None and kind != loaded:  # another type splits words differently
        raise NearfarError(
            f"{folder / 'tokenizer_config.json'}: selects a {loaded} tokenizer, but tokenizer.json holds a "
            f"{kind} tokenizer; copy both files from the original model."
        )
    if settings.lower_case and backend:
        steps = [normalizers.Lowercase(), *([backend.normalizer] if backend.normalizer else [])]
        backend.normalizer = normalizers.Sequence(steps)
    return tokenizer


def load_backend_tokenizer(file: Path) -> Tokenizer:
    """The tokenizer of a tokenizer.json alone, as static encoders have it.

    Raises:
        NearfarError: the file is damaged.
    """
    with opening(file):
        return Tokenizer.from_str(file.read_text(encoding="utf-8"))


def module_classes() -> Any:
    """The module classes of sentence-transformers, which is imported where they are needed: it takes a second."""
    with paused():
        from sentence_transformers.sentence_transformer import modules

    return modules


def load_module(kind: str, folder: Path) -> nn.Module:
    """Load a module of the sentence-transformers class ``kind``; with default settings if it has no folder."""
    modules = module_classes()
    if not folder.is_dir():
        return getattr(modules, kind)()
    return getattr(modules, kind).load(str(folder), trust_remote_code=False)


def save_transformer(
    folder: str | Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, max_length: int
) -> None:
    """Write a transformers folder, whose tokenizer truncates to ``max_length``."""
    limit, backend = tokenizer.model_max_length, cast(Any, tokenizer).backend_tokenizer
    if backend.truncation is not None:  # the saved length is the model's, not that of the tokenizer's last call
        backend.enable_truncation(**{**backend.truncation, "max_length": max_length})
    tokenizer.model_max_length = max_length
    try:
        with quiet():
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    finally:
        tokenizer.model_max_length = limit


def encode_with_sentence_transformers(folder: Path, texts: Sequence[str], *, device: str) -> NDArray[np.float32]:
    """The embeddings that sentence-transformers computes with the model in ``folder``, to compare with nearfar's."""
    with paused():
        from sentence_transformers import SentenceTransformer

    with quiet():
        model = SentenceTransformer(str(folder), device=device, trust_remote_code=False, local_files_only=True)
        return np.asarray(model.encode(list(texts), show_progress_bar=False), dtype=np.float32)


def check_complete(folder: Path, info: Mapping[str, Any], counts: Callable[[str], bool]) -> None:
    """Check that no required weight is missing or has another shape than the config says.

    Args:
        folder: the folder of the weights, for the message.
        info: transformers' loading info.
        counts: whether the weight with this name is required.

    Raises:
        NearfarError: a required weight is missing or has another shape.
    """
    shapes = {str(key): None for key in info["missing_keys"]} | {
        str(key if isinstance(key, str) else key[0]): key[1:] for key in info["mismatched_keys"]
    }
    wrong = sorted(filter(counts, shapes))
    if not wrong:
        return
    known = shapes[wrong[0]]
    detail = f" ({list(known[0])} in the file, {list(known[1])} by config.json)" if known and len(known) == 2 else ""
    raise NearfarError(f"{folder}: {len(wrong)} weights are missing or misshapen, the first is {wrong[0]}{detail}.")


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


def _special_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The ids that the tokenizer's post-processor adds to texts, whatever the vocabulary is."""
    processor = getattr(getattr(tokenizer, "backend_tokenizer", None), "post_processor", None)
    added: list[int] = []
    for name, value in checks.nested_entries(json.loads(processor.__getstate__()) if processor is not None else {}):
        if name in ("ids", "sep", "cls") and isinstance(value, list):  # sep and cls: a token and its id
            added += [token for token in value if type(token) is int]
    return added


@contextmanager
def opening(file: Path) -> Iterator[None]:
    """Turn any exception of a library inside the block into a :class:`NearfarError` that names the likeliest file."""
    try:
        yield
    except NearfarError:
        raise
    except ImportError as error:
        missing = reason(error).split(". ")[0]
        hint = any(name in missing.lower() for name in TOKENIZER_PACKAGES)
        advice = " Most models of this kind need: pip install sentencepiece sacremoses" if hint else ""
        raise NearfarError(f"{file}: {missing}.{advice}") from error
    except OSError as error:
        if error.strerror:  # from the system; transformers' own errors have only a text
            raise NearfarError(f"{error.filename or file}: cannot be read ({error.strerror}).") from error
        raise NearfarError(f"{file}: cannot be opened: {reason(error)}.") from error
    except Exception as error:
        raise NearfarError(f"{file}: cannot be opened: {reason(error)}.") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of a library in Rust; it is no Exception
            raise
        raise NearfarError(f"{file}: cannot be opened: {str(error)[:LONGEST_REASON]}.") from error


def reason(error: Exception) -> str:
    """The first line of the exception's text, or the first two if the first ends with a colon."""
    if isinstance(error, KeyError):
        return f"an unknown or missing name, {error}"[:LONGEST_REASON]
    lines = [line.strip(" .") for line in str(error).splitlines() if line.strip(" .")]
    line = _CLASS_NAME.sub("", " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1]))
    known = isinstance(error, OSError | ValueError | RuntimeError | ImportError) or type(error) is Exception
    known = known or type(error).__module__.startswith("huggingface_hub")  # it validates the fields of a config
    known = known or (isinstance(error, AssertionError | TypeError | AttributeError) and " " in line)
    return (line if line and known else f"{type(error).__name__}: {line}".strip(" :"))[:LONGEST_REASON]


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' progress bars and loading reports; problems are raised as errors instead."""
    bars, verbosity = transformers_logging.is_progress_bar_enabled(), transformers_logging.get_verbosity()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


def _check_parameters(folder: Path, config: PretrainedConfig, kind: str) -> None:
    """Refuse a config that describes a much larger model than the weights; transformers would initialise the rest."""
    elements = sum(map(prod, check_weights(folder).values()))
    with opening(folder / "config.json"), quiet(), torch.device("meta"):  # takes no memory for weights
        described = sum(weight.numel() for weight in _auto_class(config, kind).from_config(config).parameters())
    if described > MAX_GROWTH * elements + FREE_ELEMENTS:
        raise NearfarError(
            f"{folder / 'config.json'}: describes a model of {described:,} parameters, but the weights have only "
            f"{elements:,} numbers."
        )


def _refuse_custom_code(folder: Path, settings: dict[str, Any], kind: str) -> None:
    """Refuse a folder whose model or tokenizer needs custom code.

    If transformers has a class of the same name for this model type, that class is used, and the folder is accepted.
    """
    tables: dict[str, Any] = {"AutoConfig": vars(configuration_auto)["CONFIG_MAPPING_NAMES"]} | {
        auto.__name__: getattr(modeling_auto, table) for auto, table in (MODELS["encoder"], MODELS[kind])
    }
    known = {auto: names.get(settings["model_type"]) for auto, names in tables.items()}
    for name in ("config.json", "tokenizer_config.json"):
        file = folder / name
        own = settings if name == "config.json" else checks.read_object(file) if file.exists() else {}
        named = own.get("auto_map")
        named = named if isinstance(named, dict) else {"AutoTokenizer": named} if named else {}
        for auto, reference in named.items():
            built_in = auto in known and str(reference).rsplit(".", 1)[-1] == known[auto]
            if auto == "AutoTokenizer" or (auto in known and not built_in):
                raise NearfarError(
                    f"{file}: the model needs custom code ({auto} in auto_map is {quoted(reference)}), and nearfar "
                    "never runs code from a model folder. Choose a model that transformers supports natively."
                )
