"""The sentence-transformers folder: read into our parts, written from them. The only file that knows its layout.

A folder is a list of modules: Transformer, then Pooling, then any of Dense, LayerNorm, Normalize. Two more carry our
poolings, so that the folder gives the same vectors there: WordWeights with weight 0 for [CLS] is
``mean_without_cls``; WeightedLayerPooling with the chosen layers' weights 1, before it, is ``first_last`` or a pooling
of one layer, ``layer:K`` or ``layer:K:max``.
A folder without ``modules.json`` is a plain transformers encoder and gets mean pooling.
"""

import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from nearfar.disk import apply_umask
from nearfar.encoder.folder_checks import check_vocabulary, read_object
from nearfar.encoder.module_list import AFTER_POOLING, check_settings, check_tail, modules_of, pooling_name, tail_module
from nearfar.encoder.pooling import Pooling
from nearfar.encoder.pretrained import check_complete, load_config, load_model, load_tokenizer, quiet, save_modules
from nearfar.encoder.transformers_types import PreTrainedModel, PreTrainedTokenizerBase
from nearfar.runtime.garbage_collection import paused
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


class EncoderComponents(NamedTuple):
    """What a model folder holds. ``tail`` is what follows pooling, but for a last Normalize, which is ``normalize``."""

    backbone: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    pooling: str
    max_length: int
    tail: tuple[nn.Module, ...]
    normalize: bool


def read(folder: Path, *, dtype: torch.dtype, pooling: str | None = None) -> EncoderComponents:
    """Open a sentence-transformers folder or a plain transformers encoder; ``pooling`` overrides the folder's.

    Raises:
        NearfarError: weights missing, truncated or of another architecture; a module or pooling that nearfar lacks.
    """
    modules = modules_of(folder)
    inner, rest = folder / modules[0][1], modules[1:]
    backbone, tokenizer = _load_backbone(inner, dtype), load_tokenizer(inner)
    check_vocabulary(inner, tokenizer, backbone)
    has_head = any(kind not in AFTER_POOLING for kind, _ in rest)
    after = [(kind, folder / path) for kind, path in rest if kind in AFTER_POOLING]
    normalize = bool(after) and after[-1][0] == "Normalize"
    if normalize:
        check_settings(*after.pop())  # is a flag here: opening the module would import sentence-transformers
    tail = tuple(tail_module(kind, place) for kind, place in after)
    check_tail(folder, backbone.config.hidden_size, tail)
    return EncoderComponents(
        backbone,
        tokenizer,
        pooling or (pooling_name(folder, rest, cls_token=tokenizer.cls_token) if has_head else "mean"),
        default_max_length(inner, backbone, tokenizer),
        tail,
        normalize,
    )


def write(folder: Path, parts: EncoderComponents, pooling: Pooling) -> None:
    """Save through sentence-transformers, so that ``SentenceTransformer(folder).encode`` equals ours.

    Raises:
        NearfarError: the backbone still has LoRA adapters, which a plain transformers folder has no place for.
    """
    with paused():
        from sentence_transformers.sentence_transformer import modules as st

    if hasattr(parts.backbone, "peft_config"):
        raise NearfarError(f"{folder}: merge the LoRA adapters into the encoder before saving it.")

    dim, layers = parts.backbone.config.hidden_size, parts.backbone.config.num_hidden_layers
    modules: list[nn.Module] = []
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
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as plain:
        with quiet():
            parts.backbone.save_pretrained(plain)
            parts.tokenizer.save_pretrained(plain)
        dim = save_modules(
            folder,
            plain,
            modules,
            max_length=parts.max_length,
            hidden_states=bool(pooling.layers),
            pooler=getattr(parts.backbone, "pooler", None) is not None,
        )
    for file in (*folder.glob("model*.safetensors"), *folder.glob("[0-9]*_*/model.safetensors")):
        apply_umask(file)  # safetensors lets nobody but the owner read what it writes
    card = MODEL_CARD.format(dim=dim, pooling=pooling.name, length=parts.max_length)
    (folder / "README.md").write_text(card, encoding="utf-8")


def transformer_folder(folder: Path) -> Path:
    """Where in ``folder`` the transformer and its tokenizer are: itself, but for some sentence-transformers folders.

    Raises:
        NearfarError: its modules do not start with a transformer, or it prepends a prompt to each text.
    """
    return folder / modules_of(folder)[0][1]


def _load_backbone(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    backbone, info = load_model(folder, load_config(folder), kind="encoder", dtype=dtype)
    absent = {*map(str, info["missing_keys"])}
    check_complete(folder, info, lambda key: key not in absent or not key.startswith("pooler."))
    if absent:
        backbone.pooler = None  # transformers filled it with random numbers
    return backbone


def tanh_dense(dim: int) -> nn.Module:
    """A new module of the ``tail``: Linear(dim, dim), then tanh."""
    with paused():
        from sentence_transformers.sentence_transformer import modules

    return modules.Dense(dim, dim, activation_function=nn.Tanh())


def default_max_length(folder: Path, backbone: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """The folder's own limit of tokens a text, else the shorter of what the tokenizer and the position table allow.

    Raises:
        NearfarError: a limit that is none, or longer than the position table.
    """
    file = folder / "sentence_bert_config.json"
    length = read_object(file).get("max_seq_length") if file.exists() else None
    if length is None:
        return max_supported_length(backbone, tokenizer)
    positions = num_positions(backbone)
    if type(length) is not int or length < 3 or (positions is not None and length > positions):
        limit = "" if positions is None else f" to {positions}, the model's number of positions"
        raise NearfarError(f"{file}: max_seq_length is {length!r}, and must be an integer from 3{limit}.")
    return length


def max_supported_length(backbone: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """The longest text that the backbone has positions for and its tokenizer allows."""
    return int(min(num_positions(backbone) or tokenizer.model_max_length, tokenizer.model_max_length))


def num_positions(backbone: PreTrainedModel) -> int | None:
    """How many tokens the backbone has positions for; None where it counts none."""
    positions = getattr(backbone.config, "max_position_embeddings", None)
    table = getattr(getattr(backbone, "embeddings", None), "position_embeddings", None)
    first = getattr(table, "padding_idx", None)  # of RoBERTa's kin, whose first positions belong to the padding
    return positions if positions is None or first is None else positions - first - 1


def check_length(length: int, backbone: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """The ``max_length`` that was asked for.

    Raises:
        NearfarError: it is over :func:`max_supported_length`, or too short for a text.
    """
    limit = max_supported_length(backbone, tokenizer)
    if not 3 <= length <= limit:
        raise NearfarError(f"max_length {length}: this encoder takes 3 to {limit} tokens.")
    return length
