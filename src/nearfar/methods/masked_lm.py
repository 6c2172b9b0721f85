"""Masked language modelling beside another method (mlm): Gao et al. 2021, appendix A, after Devlin et al. 2019.

Data: the sentences of any method's batches. Some tokens of a sentence are masked, and the encoder's last hidden states
have to predict them: the loss is the mean over all masked tokens of the batch of
:func:`nearfar.objectives.masked_lm`. Gao et al. add it to the loss of SimCSE with weight 0.1: better on transfer tasks,
worse on STS (Tables D.2 and E.1).

Of the tokens to be predicted, 80% become the mask token, 10% a random one, and 10% stay (Devlin et al. 2019, section
3.1; the authors' code of SimCSE).

================  ====================  ============================  ==========================================
                  paper                 authors' code                 here
================  ====================  ============================  ==========================================
which texts       not given             every text of every row       each distinct text of the batch once
random tokens     not given             any of the vocabulary         any but the special ones: one inside a
                                                                      sentence could shift a model's positions
head              not given             the pretrained one            a new one, its output tied to the embeddings
================  ====================  ============================  ==========================================
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.data.batching import TextBatch
from nearfar.encoder.heads import MaskedLmHead
from nearfar.methods.base import describe_rows
from nearfar.objectives import masked_lm, to_device
from nearfar.types import Batches, Loss, Method, NearfarError


class MaskedSentence(NamedTuple):
    """A sentence with some of its tokens masked."""

    ids: list[int]
    """Token ids that the encoder reads."""
    positions: list[int]
    """Positions in ``ids`` of the tokens to predict."""
    tokens: list[int]
    """The original tokens at these positions."""


def masked_language_model(
    probability: float,
    tokenise: Callable[[Sequence[Any]], Sequence[list[int]]],
    hidden: Callable[[Sequence[Sequence[int]]], Tensor],
    head: MaskedLmHead,
    batches: Batches,
    *,
    mask_token: int,
    vocabulary: int,
    special: Collection[int],
    texts: Callable[[Any], Sequence[Any]] = lambda batch: batch.sentences,
) -> Method:
    """Train the encoder to predict masked tokens.

    ``tokenise`` gives the token ids of each text, ``hidden`` the last hidden states [tokens, dim] of sentences given by
    their ids, one sentence after the other, with gradient. ``special`` are the ids that are never masked and never
    drawn; the mask token is always one of them. ``vocabulary`` is the number of ids. ``texts`` gives the sentences of a
    batch, by default its distinct ones.

    Each token that is not special is masked with ``probability``. The masked tokens and their
    replacements are drawn in each step from torch's global generator on the CPU. A batch without masked tokens has loss
    0. There are no terms.

    Raises NearfarError if the whole vocabulary is special.
    """
    special_ids = torch.tensor(sorted({*special, mask_token}))
    words = torch.arange(vocabulary)
    words = words[~torch.isin(words, special_ids)]
    if not len(words):
        raise NearfarError(f"all {vocabulary} tokens of the vocabulary are special, so there is nothing to predict")

    def extract_items(batch: TextBatch) -> list[MaskedSentence]:
        sentences = tokenise(texts(batch))
        before = torch.tensor([token for ids in sentences for token in ids])
        chosen = (torch.rand(len(before)) < probability) & ~torch.isin(before, special_ids)
        uniform = torch.rand(len(before))
        drawn = words[torch.randint(len(words), (len(before),))]
        hidden_as = torch.where(uniform < 0.8, mask_token, torch.where(uniform < 0.9, drawn, before))
        after = torch.where(chosen, hidden_as, before)
        lengths = [len(ids) for ids in sentences]
        items: list[MaskedSentence] = []
        for was, reads, where in zip(*(column.split(lengths) for column in (before, after, chosen)), strict=True):
            items.append(MaskedSentence(reads.tolist(), where.nonzero().squeeze(1).tolist(), was[where].tolist()))
        return items

    def represent(items: Sequence[MaskedSentence]) -> Float[Tensor, "items 2"]:
        """The sum of the losses of each sentence's masked tokens, and their number."""
        states = hidden([item.ids for item in items])
        positions: list[int] = []
        start = 0
        for item in items:
            positions += [start + place for place in item.positions]
            start += len(item.ids)
        tokens = torch.tensor([token for item in items for token in item.tokens], dtype=torch.long)
        counts = to_device(torch.tensor([len(item.tokens) for item in items]), states.device)
        losses = masked_lm(head(states[positions]), to_device(tokens, states.device))
        owners = torch.arange(len(items), device=states.device).repeat_interleave(counts)
        sums = losses.new_zeros(len(items)).index_add(0, owners, losses)
        return torch.stack([sums, counts.to(sums.dtype)], dim=1)

    def loss_fn(batch: TextBatch, representations: Tensor) -> Loss:  # noqa: ARG001, the sums suffice
        sums, counts = representations.unbind(dim=1)
        return Loss(sums.sum() / counts.detach().sum().clamp(min=1), {})

    def count_tokens(items: Sequence[MaskedSentence]) -> list[int]:
        return [len(item.ids) for item in items]

    describe = partial(describe_rows, names=("sentence",))
    return Method("mlm", batches, extract_items, represent, loss_fn, describe, head, count_tokens, embeddings=False)
