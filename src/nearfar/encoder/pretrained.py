"""Calls the loaders of transformers and sentence-transformers, and checks what they give. No other module calls them.

Every call passes ``trust_remote_code=False``, so that no code from a model folder runs and no loader asks on the
terminal for permission. An exception of a loader becomes a one-sentence error that names a file.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, normalizers
from torch import nn

from nearfar.encoder import folder_checks as checks
from nearfar.encoder.weights import check_weights
from nearfar.runtime.memory import paused
from nearfar.types import NearfarError
from nearfar.validation import format_value

with paused():
    import transformers
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
MODELS: dict[str, Any] = {
    "encoder": AutoModel,
    "sequence classifier": AutoModelForSequenceClassification,
    "translation model": AutoModelForSeq2SeqLM,
}
"""Kind of model -> transformers' auto class."""


def load_config(folder: Path, *, kind: str = "encoder") -> PretrainedConfig:
    """The config of a transformers folder, for a model of one of the kinds in :data:`MODELS`.

    Raises:
        NearfarError: config.json or the weights are missing, damaged or inconsistent; or the model needs custom code.
    """
    settings, file = checks.check_config(folder), folder / "config.json"
    check_weights(folder)
    _refuse_custom_code(folder, settings, kind)
    with opening(file), quiet():
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    name = settings["model_type"]
    problem = REFUSED_TYPES.get(name)
    if type(config) not in MODELS[kind]._model_mapping:
        problem = f"transformers has no {kind} of the model type {format_value(name)}"
    elif kind == "encoder" and config.is_encoder_decoder and _auto_class(config, kind) is AutoModel:
        problem = f"{name} is an encoder with a decoder, and nearfar takes encoders alone, as those of T5, MT5 and UMT5"
    if problem is not None:
        raise NearfarError(f"{file}: {problem}; choose another model.")
    config.return_dict = True  # changes only the type of the output, no vector
    if kind != "translation model" and hasattr(config, "use_cache"):
        config.use_cache = False  # as in sentence-transformers: no text is continued
    if hasattr(config, "auto_map"):  # otherwise it would be saved again
        del config.auto_map
    return config


def load_model(
    folder: Path,
    config: PretrainedConfig | None = None,
    *,
    kind: str = "encoder",
    required: Callable[[str], bool] = lambda name: not name.startswith("pooler."),
) -> Any:
    """The model of a transformers folder in float32; an encoder has no pooler if the folder has none.

    Args:
        folder: the folder.
        config: the result of :func:`load_config`, perhaps changed.
        kind: one of :data:`MODELS`.
        required: whether the weight with this name must be there. Others are initialised anew where they are missing or
            have another shape than the config says.

    Raises:
        NearfarError: transformers cannot open it, or it is much larger than its weights; a required weight is missing
            or has another shape.
    """
    config = config or load_config(folder, kind=kind)
    file, elements = folder / "config.json", sum(map(prod, check_weights(folder).values()))
    with opening(file), quiet(), torch.device("meta"):  # takes no memory for weights
        described = _auto_class(config, kind).from_config(config)
    size = sum(tensor.numel() for tensor in chain(described.parameters(), described.buffers()))
    if size > MAX_GROWTH * elements + FREE_ELEMENTS:  # transformers would initialise the rest
        raise NearfarError(f"{file}: describes a model of {size:,} numbers, but the weights have only {elements:,}.")
    with opening(file), quiet():  # names config.json, because the weights have been checked
        model, info = _auto_class(config, kind).from_pretrained(
            folder,
            config=config,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            dtype=torch.float32,
        )
    absent = dict.fromkeys(info["missing_keys"], "")
    for name, found, own in info["mismatched_keys"]:
        absent[name] = f" ({[*found]} in the file, {[*own]} by config.json)"
    if wrong := sorted(filter(required, absent)):
        first = f"{wrong[0]}{absent[wrong[0]]}"
        raise NearfarError(f"{folder}: {len(wrong)} weights are missing or misshapen, the first is {first}.")
    if absent and kind == "encoder":
        model.pooler = None  # transformers initialised it with random weights
    return model


def _auto_class(config: PretrainedConfig, kind: str) -> Any:
    """The class that loads a model: of the kind in :data:`MODELS`, or for T5 and its like that of the encoder alone."""
    auto, own = MODELS[kind], AutoModelForTextEncoding._model_mapping.get(type(config), None)
    encoder_alone = auto is AutoModel and own not in (None, auto._model_mapping[type(config)])
    return AutoModelForTextEncoding if encoder_alone else auto


def load_tokenizer(folder: Path, *, fast: bool = True) -> PreTrainedTokenizerBase:
    """The tokenizer of a transformers folder, as the module Transformer of sentence-transformers sets it.

    Raises:
        NearfarError: its files are missing or damaged; ``fast`` is set and it is not a fast tokenizer; or
            tokenizer_config.json names a tokenizer of another type than that in tokenizer.json.
    """
    vocabulary, settings = checks.check_tokenizer_files(folder), checks.transformer_settings(folder, classifier=True)
    with opening(vocabulary), quiet():
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False, **settings.tokenizer
        )
        tokenizer("a", "b")  # a damaged post-processor fails only now
    if fast and not tokenizer.is_fast:
        raise NearfarError(f"{folder}: has no fast tokenizer (tokenizer.json), which nearfar needs.")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend and vocabulary.name == "tokenizer.json":
        in_file = Tokenizer.from_str(vocabulary.read_text(encoding="utf-8"))
        held, loaded = (type(one.model).__name__ for one in (in_file, backend))
        if held != loaded:  # another type splits words differently
            problem = f"selects a {loaded} tokenizer, but tokenizer.json holds a {held} tokenizer"
            raise NearfarError(f"{folder / 'tokenizer_config.json'}: {problem}; copy both from the original model.")
    if settings.do_lower_case and backend:
        steps = [normalizers.Lowercase(), *([backend.normalizer] if backend.normalizer else [])]
        backend.normalizer = normalizers.Sequence(steps)
    return tokenizer


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
    folder: str | Path, save: Callable[[Any], object], tokenizer: PreTrainedTokenizerBase, *, max_length: int
) -> None:
    """Write a transformers folder, to which ``save`` writes the model; its tokenizer truncates to ``max_length``."""
    backend = cast(Any, tokenizer).backend_tokenizer
    if backend.truncation is not None:  # the saved length is the model's, not that of the tokenizer's last call
        backend.enable_truncation(**{**backend.truncation, "max_length": max_length})
    tokenizer.model_max_length = max_length
    with quiet():
        save(folder)
        tokenizer.save_pretrained(folder)


def encode_with_sentence_transformers(folder: Path, texts: Sequence[str], *, device: str) -> NDArray[np.float32]:
    """The embeddings that sentence-transformers computes with the model in ``folder``, to compare with nearfar's."""
    with paused():
        from sentence_transformers import SentenceTransformer

    with quiet():
        model = SentenceTransformer(str(folder), device=device, trust_remote_code=False, local_files_only=True)
        return np.asarray(model.encode(list(texts), show_progress_bar=False), dtype=np.float32)


def check_vocabulary(folder: Path, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel) -> None:
    """Check that the vocabulary has words and that each token, also of those added to each text, has an embedding.

    An embedding matrix with somewhat more rows than tokens is common: rows are padded to a round number.

    Raises:
        NearfarError: the vocabulary does not belong to the model.
    """
    vocabulary, embeddings = tokenizer.get_vocab(), cast(Any, model.get_input_embeddings())
    if not set(vocabulary) - set(tokenizer.all_special_tokens):
        raise NearfarError(f"{folder}: the tokenizer has only special tokens, no words; copy the original files.")
    rows, tokens = embeddings.weight.shape[0], max(vocabulary.values()) + 1
    last = max([tokens - 1, *tokenizer("a", "b")["input_ids"]])
    if last >= rows or rows > 2 * tokens:
        name = format_value(next((word for word, number in vocabulary.items() if number == last), ""))
        problem = f"the tokenizer has token ids up to {last} ({name}), but the model has embeddings for {rows} tokens"
        raise NearfarError(f"{folder}: {problem}; copy the tokenizer files of the original model.")


@contextmanager
def opening(file: Path) -> Iterator[None]:
    """Turn any exception of a library inside the block into a :class:`NearfarError` that names the likeliest file."""
    try:
        yield
    except BaseException as error:
        panicked = type(error).__name__ == "PanicException"  # of a library in Rust; it is no Exception
        if isinstance(error, NearfarError) or not (panicked or isinstance(error, Exception)):
            raise
        if isinstance(error, OSError) and error.strerror:  # from the system; transformers' own errors have only a text
            raise NearfarError(f"{error.filename or file}: cannot be read ({error.strerror}).") from error
        needs = isinstance(error, ImportError) and any(name in str(error).lower() for name in TOKENIZER_PACKAGES)
        advice = " Most models of this kind need: pip install sentencepiece sacremoses" if needs else ""
        raise NearfarError(f"{file}: cannot be opened: {reason(error)}.{advice}") from error


def reason(error: BaseException) -> str:
    """The first line of the exception's text, or two if the first ends with a colon; before a single word its type."""
    lines = [" ".join(line.split()).strip(" .") for line in str(error).splitlines() if line.strip(" .")]
    line = _CLASS_NAME.sub("", " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1]))
    return (line if " " in line else f"{type(error).__name__}: {line}".strip(" :"))[:LONGEST_REASON]


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


def _refuse_custom_code(folder: Path, settings: Mapping[str, Any], kind: str) -> None:
    """Refuse a folder whose model or tokenizer needs custom code.

    Where transformers has a class of the same name, that class is used, and the folder is accepted.
    """
    for file in (folder / "config.json", folder / "tokenizer_config.json"):
        content = settings if file.name == "config.json" else checks.read_object(file) if file.exists() else {}
        named = content.get("auto_map") or {}
        for auto, reference in (named if isinstance(named, dict) else {"AutoTokenizer": named}).items():
            built_in = hasattr(transformers, str(reference).rsplit(".", 1)[-1])
            if auto == "AutoTokenizer" or (auto in ("AutoConfig", "AutoModel", MODELS[kind].__name__) and not built_in):
                needs = f"the model needs custom code ({auto} in auto_map is {format_value(reference)})"
                raise NearfarError(f"{file}: {needs}, and nearfar never runs code from a model folder.")
