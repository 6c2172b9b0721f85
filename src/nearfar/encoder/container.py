"""The sentence-transformers folder: read into our parts, written from them. The only file that knows its layout.

A folder is a list of modules: Transformer, then Pooling, then any of Dense, LayerNorm, Normalize. Two more carry our
poolings, so that the folder gives the same vectors there: WordWeights with weight 0 for [CLS] is
``mean_without_cls``; WeightedLayerPooling with the chosen layers' weights 1, before it, is ``first_last`` or a pooling
of one layer, ``layer:K`` or ``layer:K:max``.
A folder without ``modules.json`` is a plain transformers encoder and gets mean pooling.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from nearfar.encoder.pooling import Pooling
from nearfar.encoder.weights import check_weights
from nearfar.types import NearfarError

MODEL_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, sentence-similarity, feature-extraction, nearfar]
---
# A sentence encoder

Made with nearfar. {dim} dimensions, pooling `{pooling}`, texts up to {length} tokens.

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("this folder")
embeddings = model.encode(["A man plays a guitar.", "Someone makes music."])
print(model.similarity(embeddings, embeddings))
```
"""
AFTER_POOLING = ("Dense", "LayerNorm", "Dropout", "Normalize")


class Parts(NamedTuple):
    """What a model folder holds. ``tail`` is what follows pooling, but for a last Normalize, which is ``normalize``."""

    backbone: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    pooling: str
    max_length: int
    tail: tuple[nn.Module, ...]
    normalize: bool


def read(folder: Path, *, dtype: torch.dtype, pooling: str | None = None) -> Parts:
    """Open a sentence-transformers folder or a plain transformers encoder; ``pooling`` overrides the folder's.

    Raises:
        NearfarError: weights missing, truncated or of another architecture; a module or pooling that nearfar lacks.
    """
    inner = transformer_folder(folder)
    check_weights(inner)
    backbone = _load_backbone(inner, dtype)
    tokenizer = load_tokenizer(inner)
    rest = _modules(folder)[1:]
    head = [kind for kind, _ in rest if kind not in AFTER_POOLING]
    after = [(kind, folder / path) for kind, path in rest if kind in AFTER_POOLING]
    normalize = bool(after) and after[-1][0] == "Normalize"
    tail = tuple(_load_module(kind, path) for kind, path in (after[:-1] if normalize else after))
    unknown = [kind for kind in head if kind not in ("Pooling", "WordWeights", "WeightedLayerPooling")]
    if unknown:
        raise NearfarError(f"{folder}: has a module {unknown[0]!r}, which nearfar does not know.")
    return Parts(
        backbone,
        tokenizer,
        pooling or (_pooling_name(folder, rest) if head else "mean"),
        own_length(inner, backbone, tokenizer),
        tail,
        normalize,
    )


def write(folder: Path, parts: Parts, pooling: Pooling) -> None:
    """Save through sentence-transformers, so that ``SentenceTransformer(folder).encode`` equals ours.

    Raises:
        NearfarError: the backbone still has LoRA adapters, which a plain transformers folder has no place for.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules as st

    if hasattr(parts.backbone, "peft_config"):
        raise NearfarError(f"{folder}: merge the LoRA adapters into the encoder before saving it.")

    dim, layers = parts.backbone.config.hidden_size, parts.backbone.config.num_hidden_layers
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as plain, quiet():
        parts.backbone.save_pretrained(plain)
        parts.tokenizer.save_pretrained(plain)
        transformer = st.Transformer(
            plain,
            max_seq_length=parts.max_length,
            config_kwargs={"output_hidden_states": True} if pooling.layers else {},
            model_kwargs={"dtype": "auto"},
        )
    if getattr(parts.backbone, "pooler", None) is None and hasattr(transformer.auto_model, "pooler"):
        transformer.auto_model.pooler = None  # else random weights would be saved as if they had been trained
    modules: list[nn.Module] = [transformer]
    if pooling.layers:
        weights = torch.zeros(layers + 1)
        weights[list(pooling.layers)] = 1.0
        modules.append(
            st.WeightedLayerPooling(dim, num_hidden_layers=layers, layer_start=0, layer_weights=nn.Parameter(weights))
        )
    if pooling.tokens == "mean_without_cls":
        vocabulary = sorted(parts.tokenizer.get_vocab().items(), key=lambda entry: entry[1])
        modules.append(st.WordWeights([word for word, _ in vocabulary], {parts.tokenizer.cls_token: 0.0}))
    modules.append(st.Pooling(dim, pooling_mode="mean" if pooling.tokens == "mean_without_cls" else pooling.tokens))
    modules.extend(parts.tail)
    if parts.normalize:
        modules.append(st.Normalize())
    with quiet():
        model = SentenceTransformer(modules=modules, device="cpu", similarity_fn_name="cosine")
        model.save_pretrained(str(folder), create_model_card=False)
    card = MODEL_CARD.format(dim=model.get_embedding_dimension(), pooling=pooling.name, length=parts.max_length)
    (folder / "README.md").write_text(card, encoding="utf-8")


def transformer_folder(folder: Path) -> Path:
    """Where in ``folder`` the transformer and its tokenizer are: itself, but for some sentence-transformers folders.

    Raises:
        NearfarError: its modules do not start with a transformer, or it prepends a prompt to each text.
    """
    return folder / _modules(folder)[0][1]


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The transformer's tokenizer.

    Raises:
        NearfarError: it is none of the fast ones.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if not tokenizer.is_fast:
        raise NearfarError(f"{folder}: has no fast tokenizer (tokenizer.json), which nearfar needs.")
    return tokenizer


def _modules(folder: Path) -> list[tuple[str, str]]:
    """Kind and path of each module, the Transformer first."""
    listing = folder / "modules.json"
    if not listing.is_file():
        return [("Transformer", "")]
    modules = [(entry["type"].rsplit(".", 1)[-1], entry["path"]) for entry in _json(listing)]
    if not modules or modules[0][0] != "Transformer":
        raise NearfarError(f"{listing}: does not start with a Transformer, so it is no encoder that nearfar can train.")
    prompts = folder / "config_sentence_transformers.json"
    if prompts.is_file() and (default := _json(prompts).get("default_prompt_name")):
        raise NearfarError(f"{prompts}: prepends the prompt {default!r} to each text, which nearfar does not do.")
    return modules


def _load_backbone(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    try:
        with quiet():
            backbone, info = AutoModel.from_pretrained(
                folder, dtype=dtype, output_loading_info=True, use_safetensors=True
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise NearfarError(f"{folder}: transformers cannot open it: {str(error).strip().splitlines()[0]}") from error
    missing = [key for key in info["missing_keys"] if not key.startswith("pooler.")]
    if missing or info["mismatched_keys"]:
        wrong = missing or [str(key) for key in info["mismatched_keys"]]
        raise NearfarError(f"{folder}: {len(wrong)} weights are missing or misshapen, the first is {wrong[0]}.")
    if info["missing_keys"]:
        backbone.pooler = None  # transformers filled it with random numbers
    return backbone


def _load_module(kind: str, folder: Path) -> nn.Module:
    from sentence_transformers.sentence_transformer import modules

    module = getattr(modules, kind)
    return module.load(str(folder)) if folder.is_dir() else module()


def tanh_dense(dim: int) -> nn.Module:
    """A new module of the ``tail``: Linear(dim, dim), then tanh."""
    from sentence_transformers.sentence_transformer import modules

    return modules.Dense(dim, dim, activation_function=nn.Tanh())


def _pooling_name(folder: Path, modules: Sequence[tuple[str, str]]) -> str:
    """The name of ours that the modules amount to."""
    paths = {kind: folder / path for kind, path in modules}
    settings = _json(paths["Pooling"] / "config.json")
    legacy = {
        key.removeprefix("pooling_mode_").removesuffix("_token").removesuffix("_tokens"): value
        for key, value in settings.items()
        if key.startswith("pooling_mode_")
    }
    mode = settings.get("pooling_mode") or [name for name, on in legacy.items() if on]
    mode = mode[0] if isinstance(mode, list) and len(mode) == 1 else mode
    if mode not in ("cls", "mean", "max"):
        raise NearfarError(f"{paths['Pooling']}: pools by {mode}, which nearfar does not; choose one with pooling=.")
    if "WordWeights" in paths:
        if mode != "mean" or set(_json(paths["WordWeights"] / "config.json")["word_weights"].values()) != {0.0}:
            raise NearfarError(f"{paths['WordWeights']}: weights words one by one, which nearfar does not.")
        mode = "mean_without_cls"
    if "WeightedLayerPooling" in paths:
        return _layer_pooling_name(paths["WeightedLayerPooling"], mode)
    return str(mode)


def _layer_pooling_name(folder: Path, tokens: str) -> str:
    settings, weights = _json(folder / "config.json"), load_file(folder / "model.safetensors")["layer_weights"]
    chosen = [int(layer) + settings["layer_start"] for layer in weights.nonzero().flatten()]
    if len(chosen) == 1:
        return f"layer:{chosen[0]}" if tokens == "mean" else f"layer:{chosen[0]}:{tokens}"
    if tokens == "mean" and chosen == [1, settings["num_hidden_layers"]] and weights.max() == weights.sum() / 2:
        return "first_last"
    raise NearfarError(f"{folder}: weights the layers in a way that nearfar does not; choose a pooling with pooling=.")


def own_length(folder: Path, backbone: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """The folder's own limit of tokens a text, else the shorter of what the tokenizer and the position table allow."""
    settings = folder / "sentence_bert_config.json"
    if settings.is_file() and (length := _json(settings).get("max_seq_length")):
        return int(length)
    return position_limit(backbone, tokenizer)


def position_limit(backbone: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """The longest text that the backbone has positions for and its tokenizer allows."""
    positions = getattr(backbone.config, "max_position_embeddings", None) or tokenizer.model_max_length
    return int(min(positions, tokenizer.model_max_length))


def check_length(length: int, backbone: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """The ``max_length`` that was asked for.

    Raises:
        NearfarError: it is over :func:`position_limit`, or too short for a text.
    """
    limit = position_limit(backbone, tokenizer)
    if not 3 <= length <= limit:
        raise NearfarError(f"max_length {length}: this encoder takes 3 to {limit} tokens.")
    return length


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars or load reports of transformers: what matters of them is raised as an error here."""
    bars, verbosity = transformers_logging.is_progress_bar_enabled(), transformers_logging.get_verbosity()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise NearfarError(f"{file}: cannot be read as JSON ({error}).") from error
