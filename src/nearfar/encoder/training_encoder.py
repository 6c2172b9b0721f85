"""Wrappers of encoder and classifier for training: texts are tokenised once, vectors are computed with gradient."""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from nearfar.encoder.classifier import Classifier, Item
from nearfar.encoder.cuda_graphs import COMPILE_VARIABLE, COMPILED_FROM, Graphs, switch, uses_graphs
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.exported import refuse_graph
from nearfar.encoder.frozen import Guide
from nearfar.encoder.prompts import PromptedText
from nearfar.encoder.ragged import bf16_runs, transformer_layers
from nearfar.encoder.tiles import TiledBatch
from nearfar.encoder.tokens import BroadcastFromFirst, TokenRows, TokenStore

if TYPE_CHECKING:
    from rich.console import Console


def add_gradients_in_place(module: nn.Module) -> None:
    """Let each plain ``nn.Embedding`` inside ``module`` that is on a CPU add its gradient to few rows.

    A batch contains few tokens of the vocabulary, but autograd allocates a dense gradient of zeros, as large as the
    weights, in each backward pass. A sparse gradient becomes dense once in a step, and later ones are added to it.
    """
    for part in module.modules():
        if type(part) is nn.Embedding and part.weight.device.type == "cpu" and part.weight.requires_grad:
            part.sparse = True
            part.weight.register_post_accumulate_grad_hook(_make_dense)


def _make_dense(weight: Tensor) -> None:
    if weight.grad is not None and weight.grad.is_sparse:
        weight.grad = weight.grad.to_dense()


TrainingText: TypeAlias = str | PromptedText
"""A text with the encoder's default prompt, or with another one."""


class TrainingEncoder:
    """The encoder that methods use: it tokenises each distinct text once and computes embeddings with gradient.

    The prompts are those that the encoder has when this object is created; a plain text gets the default one.

    ``bf16`` selects bfloat16 autocast. With ``cuda_graphs``, batches on a GPU are computed by
    :class:`nearfar.encoder.cuda_graphs.Graphs` where they can. For ``broadcast_from_first`` and ``console`` see
    :class:`nearfar.encoder.tokens.TokenStore`.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        max_length: int | None,
        bf16: bool,
        broadcast_from_first: BroadcastFromFirst,
        cuda_graphs: bool = False,
        console: "Console | None" = None,
    ) -> None:
        refuse_graph(encoder.backbone, "trained")
        add_gradients_in_place(encoder)
        self.encoder = encoder
        self.default_prompt = encoder.resolve_prompt()
        self.query_prompt, self.document_prompt = encoder.query_prompt, encoder.document_prompt
        self.bf16 = bf16 and bf16_runs(encoder.backbone, encoder.route)
        self._compiled = False
        use = cuda_graphs and uses_graphs(encoder)
        self.graphs = self._graphs(encoder, encoder.embed_batch) if use else None
        self._max_length = min(max_length or encoder.max_length, encoder.max_length)
        self._prompt_length = cache(partial(encoder.prompt_length, max_length=self._max_length))
        self.tokens = TokenStore(
            self._tokenize,
            vocabulary=encoder.backbone.config.vocab_size,
            broadcast_from_first=broadcast_from_first,
            console=console,
        )

    def expect(self, *, steps: int) -> None:
        """Compile the layers in CUDA graphs if that pays in so many steps.

        Raises:
            NearfarError: :data:`nearfar.encoder.cuda_graphs.COMPILE_VARIABLE` is neither 0 nor 1.
        """
        self._compiled = switch(COMPILE_VARIABLE, default=steps >= COMPILED_FROM)

    def with_prompts(self, **prompts: str | None) -> "TrainingEncoder":
        """The same encoder with other prompts: ``query_prompt``, ``document_prompt``, ``prompt`` for all other texts.

        Each is a text or the name of one of the model's; None changes nothing.

        Raises:
            NearfarError: a single word that is not the name of a prompt.
        """
        other = copy(self)
        for name, prompt in prompts.items():
            if prompt is not None:
                attribute = "default_prompt" if name == "prompt" else name
                setattr(other, attribute, self.encoder.find_prompt(name, prompt))
        return other

    def read(self, rows: Iterable[Sequence[TrainingText]]) -> None:
        """Tokenise the texts of ``rows``; all processes that train together must read the same rows."""
        self.tokens.read(prompt + text for row in rows for prompt, text in map(self._prompted, row))

    def ids(self, texts: Sequence[TrainingText]) -> TokenRows:
        """Token ids of texts, which must have been read."""
        prompted = [self._prompted(text) for text in texts]
        rows = self.tokens.select([prompt + text for prompt, text in prompted])
        lengths = [self._prompt_length(prompt) for prompt, _ in prompted]
        return replace(rows, prompt_lengths=np.array(lengths, dtype=np.int64)) if any(lengths) else rows

    def lengths(self, texts: Sequence[TrainingText]) -> list[int]:
        """Number of tokens of each text; the texts must have been read."""
        return list(map(int, self.ids(texts).lengths))

    def embed(self, texts: Sequence[TrainingText]) -> Tensor:
        """Embeddings [texts, dim] with gradient, in float32."""
        rows = self.ids(texts)
        if self.graphs is not None and (embedding := self.graphs.run(rows)) is not None:
            return embedding
        with self._autocast():
            return self.encoder(rows).float()

    def hidden(self, token_ids: Sequence[Sequence[int]]) -> Tensor:
        """Last hidden states [tokens, dim] with gradient, in float32."""
        with self._autocast():
            return self.encoder.hidden(token_ids).float()

    def views(self, guide: Guide) -> Callable[[Sequence[str]], Tensor]:
        """A function that computes the guide's views of texts, over all tokens, those of a prompt included.

        Where training passes are CUDA graphs, views are too, unless the guide has dropout.
        """
        graphed = self.graphs is not None and not guide.dropout
        graphs = self._graphs(guide, guide.batch_views) if graphed else None

        def views(texts: Sequence[str]) -> Tensor:
            rows = replace(self.ids(texts), prompt_lengths=None)
            if graphs is not None and (computed := graphs.run(rows)) is not None:
                return computed
            with self._autocast():
                return guide.views(rows).float()

        return views

    def _graphs(self, module: Encoder | Guide, compute: Callable[[TiledBatch], Tensor]) -> Graphs:
        def layers() -> Sequence[nn.Module]:
            return list(transformer_layers(module.backbone)) if self._compiled else []

        padding = self.encoder.backbone.config.pad_token_id
        return Graphs(module, compute, padding=padding, bf16=self.bf16, layers=layers)

    def _tokenize(self, texts: Sequence[str]) -> tuple[list[list[int]], int]:
        """Token ids of texts that have their prompts, and the number of truncated texts."""
        tokenized = self.encoder.tokenize(texts, prompt="", max_length=self._max_length)
        return tokenized.ids, tokenized.truncated

    def _prompted(self, text: TrainingText) -> PromptedText:
        return PromptedText(self.default_prompt, text) if isinstance(text, str) else text

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.encoder.device.type, dtype=torch.bfloat16, enabled=self.bf16)


class TrainingClassifier:
    """The classifier that methods use, in two parts: the hidden states of [CLS], and the head on them.

    The items of a run are tokenised once; ``truncated`` is the number of those that were truncated.
    """

    def __init__(self, classifier: Classifier, items: Sequence[Item], *, max_length: int | None, bf16: bool) -> None:
        refuse_graph(classifier.model, "trained")
        add_gradients_in_place(classifier)
        self.classifier = classifier
        self.bf16 = bf16 and bf16_runs(classifier.backbone, classifier.route)
        self.head = TrainingHead(classifier)
        self._rows = {item: row for row, item in enumerate(dict.fromkeys(items))}
        self._tokens = classifier.tokenize(list(self._rows), max_length=max_length)
        self.truncated = sum(self._tokens.is_truncated[self._rows[item]] for item in items)

    def lengths(self, items: Sequence[Item]) -> list[int]:
        """Number of tokens of each of some of the items."""
        return [len(self._tokens.ids[self._rows[item]]) for item in items]

    def states(self, items: Sequence[Item]) -> Tensor:
        """Last hidden states of [CLS] of some of the items, [items, dim], with gradient, in float32."""
        with torch.autocast(self.classifier.device.type, dtype=torch.bfloat16, enabled=self.bf16):
            return self.classifier.cls(self._tokens.select([self._rows[item] for item in items])).float()


class TrainingHead(nn.Module):
    """The submodules of a classifier outside its backbone, as one module: hidden states of [CLS] -> logits.

    A pooler, if the architecture has one, is part of the backbone.
    """

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self._compute = classifier.head  # a method, so that torch does not register the backbone as a submodule
        for name, module in classifier.model.named_children():
            if module is not classifier.backbone:
                self.add_module(name, module)

    def forward(self, states: Tensor) -> Tensor:
        """Logits [items, classes], or [items, 1] in regression."""
        return self._compute(states)
