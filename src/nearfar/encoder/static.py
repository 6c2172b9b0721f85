"""Static encoders: a vector for each token, averaged over the tokens of a text; no transformer.

In sentence-transformers they are the module StaticEmbedding, which other tools (model2vec) write too. Here the table of
token vectors takes the place of the transformer, so that such an encoder is encoded, trained and saved as any other.
Its tokenizer adds no special tokens. A text without tokens gets the zero vector.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from jaxtyping import Float
from safetensors import safe_open
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from nearfar.encoder import pretrained
from nearfar.encoder.pretrained import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from nearfar.encoder.weights import shapes_of
from nearfar.types import NearfarError

UNLIMITED = 10**6
"""The maximum number of tokens in a text, if the tokenizer does not truncate."""


class StaticBackbone(PreTrainedModel):
    """A table of token vectors, with the interface of a transformer without layers.

    Args:
        weights: the vectors [vocabulary, dim].
    """

    config_class = PretrainedConfig
    _supports_attention_backend = False

    def __init__(self, weights: Float[Tensor, "vocabulary dim"]) -> None:
        vocabulary, dim = weights.shape
        sizes = {"vocab_size": vocabulary, "hidden_size": dim, "intermediate_size": 0, "num_hidden_layers": 0}
        super().__init__(PretrainedConfig.from_dict(sizes))
        self.word_embeddings = nn.Embedding(vocabulary, dim, _weight=weights)

    def get_input_embeddings(self) -> nn.Module:
        """The table."""
        return self.word_embeddings

    def forward(self, input_ids: Tensor, **_: object) -> SimpleNamespace:
        """The vectors of tokens, as the hidden states of layer 0, which is also the last."""
        states = self.word_embeddings(input_ids)
        return SimpleNamespace(last_hidden_state=states, hidden_states=(states,))


def is_static(backbone: object) -> bool:
    """Whether a backbone is a table of token vectors."""
    return isinstance(backbone, StaticBackbone)


def merge_square_layers(backbone: "PreTrainedModel", tail: nn.ModuleList) -> None:
    """Merge the linear layers of the table's width at the start of ``tail`` into a static backbone, and remove them.

    A mean of W v + b is W (mean of v) + b, so the embeddings are the same, but for that of a text without tokens, which
    is the zero vector afterwards.
    """
    table = cast(StaticBackbone, backbone).word_embeddings.weight
    dim = table.shape[1]
    while len(tail):
        linear, activation = (getattr(tail[0], name, None) for name in ("linear", "activation_function"))
        is_square = isinstance(linear, nn.Linear) and linear.weight.shape == (dim, dim)
        if linear is None or not is_square or not isinstance(activation, nn.Identity):
            break
        with torch.no_grad():
            bias = None if linear.bias is None else linear.bias.double()
            table.copy_(nn.functional.linear(table.double(), linear.weight.double(), bias))
        del tail[0]


def static_tokenizer(tokenizer: Tokenizer) -> tuple[PreTrainedTokenizerBase, int]:
    """A tokenizer that adds no special tokens and no padding, and its maximum number of tokens."""
    settings = json.loads(tokenizer.to_str())
    length = (settings.get("truncation") or {}).get("max_length", UNLIMITED)
    settings |= {"post_processor": None, "truncation": None, "padding": None}
    plain = Tokenizer.from_str(json.dumps(settings))
    return PreTrainedTokenizerFast(tokenizer_object=plain, model_max_length=UNLIMITED), min(length, UNLIMITED)


def read_static(folder: Path) -> tuple[StaticBackbone, PreTrainedTokenizerBase, int]:
    """Read the module StaticEmbedding from its folder: a float32 table, the tokenizer, the maximum number of tokens.

    Raises:
        NearfarError: a file is missing or damaged, or the tokenizer belongs to another table.
    """
    vocabulary, weights = folder / "tokenizer.json", folder / "model.safetensors"
    shapes = shapes_of(weights)
    with pretrained.opening(vocabulary):
        tokenizer, length = static_tokenizer(Tokenizer.from_str(vocabulary.read_text(encoding="utf-8")))
    if "embedding.weight" in shapes:
        with safe_open(weights, framework="pt") as tensors:
            table = tensors.get_tensor("embedding.weight")
    elif "embeddings" in shapes:  # model2vec, whose vectors may have weights, or be shared by tokens
        with pretrained.opening(weights):
            table = cast(Any, pretrained.load_module("StaticEmbedding", folder)).embedding.weight.detach()
    else:
        raise NearfarError(f"{weights}: holds no embedding.weight, the vectors of a static encoder's tokens.")
    if table.ndim != 2 or not table.is_floating_point() or 0 in table.shape:
        raise NearfarError(f"{weights}: the vectors have the shape {list(table.shape)} and the dtype {table.dtype}.")
    last = max(tokenizer.get_vocab().values(), default=-1)
    if last >= len(table):
        raise NearfarError(f"{folder}: the tokenizer has token ids up to {last}, but there are {len(table)} vectors.")
    return StaticBackbone(table.float()), tokenizer, length


def static_module(backbone: StaticBackbone, tokenizer: PreTrainedTokenizerBase, *, max_length: int) -> nn.Module:
    """The module StaticEmbedding of sentence-transformers with the same vectors.

    Raises:
        NearfarError: the tokenizer is not a fast one.
    """
    backend = Tokenizer.from_str(cast(Any, tokenizer).backend_tokenizer.to_str())
    backend.no_padding()
    backend.no_truncation()
    if max_length < UNLIMITED:
        backend.enable_truncation(max_length)
    weights = backbone.word_embeddings.weight.detach().cpu().contiguous()
    return cast(nn.Module, pretrained.module_classes().StaticEmbedding(backend, embedding_weights=weights))
