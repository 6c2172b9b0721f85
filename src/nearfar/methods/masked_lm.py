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

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.data.batching import TextBatch
from nearfar.encoder.heads import MaskedLmHead
from nearfar.encoder.training_encoder import TrainingEncoder
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
    encoder: TrainingEncoder,
    head: MaskedLmHead,
    batches: Batches,
    texts: Callable[[Any], Sequence[Any]],
) -> Method:
    """Train the encoder to predict masked tokens of the sentences that ``texts`` gives of a batch.

    Each token that is not special for the encoder's tokenizer is masked with ``probability``. The masked tokens and
    their replacements, which are no special tokens either, are drawn in each step from torch's global generator on the
    CPU. A batch without masked tokens has loss 0. There are no terms.

    Raises:
        NearfarError: the tokenizer has no mask token.
    """
    tokenizer = encoder.encoder.tokenizer
    if (mask := tokenizer.mask_token_id) is None:
        raise NearfarError("--mlm-weight: this encoder's tokenizer has no mask token.")
    special_ids = torch.tensor(sorted({*tokenizer.all_special_ids, mask}))
    words = torch.arange(len(head.bias))
    words = words[~torch.isin(words, special_ids)]

    def extract_items(batch: TextBatch) -> list[MaskedSentence]:
        sentences = encoder.ids(texts(batch))
        before = torch.tensor([token for ids in sentences for token in ids])
        chosen = (torch.rand(len(before)) < probability) & ~torch.isin(before, special_ids)
        uniform = torch.rand(len(before))
        drawn = words[torch.randint(len(words), (len(before),))]
        hidden_as = torch.where(uniform < 0.8, mask, torch.where(uniform < 0.9, drawn, before))
        after = torch.where(chosen, hidden_as, before)
        lengths = [len(ids) for ids in sentences]
        items: list[MaskedSentence] = []
        for was, reads, where in zip(*(column.split(lengths) for column in (before, after, chosen)), strict=True):
            items.append(MaskedSentence(reads.tolist(), where.nonzero().squeeze(1).tolist(), was[where].tolist()))
        return items

    def represent(items: Sequence[MaskedSentence]) -> Float[Tensor, "items 2"]:
        """The sum of the losses of each sentence's masked tokens, and their number."""
        states = encoder.hidden([item.ids for item in items])
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
