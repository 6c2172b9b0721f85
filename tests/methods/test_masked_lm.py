"""mlm: masked tokens and their rates, the loss by loops, micro-batches."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from nearfar.data.batching import TextBatches
from nearfar.encoder.heads import MaskedLmHead
from nearfar.methods.masked_lm import MaskedSentence, masked_language_model
from tests.methods.table_encoder import assert_same_gradients

DIM, VOCABULARY = 6, 30
PAD, START, END, MASK = SPECIAL = (0, 1, 2, 3)
TRIPLETS = [("4 5 6", "7 8", "9 10 11 12"), ("4 5 6", "13", "14 15 16 17 18"), ("19 20", "7 8", "21 22 23 24")]


def tokenise(texts):
    """Texts are lists of token ids."""
    return [[START, *map(int, text.split()), END] for text in texts]


class Words(nn.Module):
    """An encoder whose states depend on the word, its position and its sentence."""

    def __init__(self):
        super().__init__()
        self.embeddings = nn.Embedding(VOCABULARY, DIM, dtype=torch.float64)

    def forward(self, sentences):
        return torch.cat([self.sentence(ids) for ids in sentences])

    def sentence(self, ids):
        vectors = self.embeddings(torch.tensor(ids))
        return vectors + vectors.mean(dim=0) + torch.arange(len(ids))[:, None] / 10


def build(rows=TRIPLETS, probability=0.15):
    torch.manual_seed(0)
    words = Words()
    head = MaskedLmHead(DIM, words.embeddings, std=0.5).double()
    tokenizer = SimpleNamespace(mask_token_id=MASK, all_special_ids=SPECIAL)
    encoder = SimpleNamespace(ids=tokenise, hidden=words, encoder=SimpleNamespace(tokenizer=tokenizer))
    batches = TextBatches(rows, len(rows), min_batch_size=1)
    method = masked_language_model(probability, encoder, head, batches, lambda batch: batch.sentences)
    (batch,) = batches.epoch(0)
    return words, head, method, batch


def by_hand(words, head, items):
    """The mean cross-entropy of masked tokens, by loops over sentences and tokens."""
    losses = []
    for ids, positions, tokens in items:
        states = words.sentence(ids)
        for position, token in zip(positions, tokens, strict=True):
            x = nn.functional.gelu(head.dense.weight @ states[position] + head.dense.bias)
            x = (x - x.mean()) / (((x - x.mean()) ** 2).mean() + 1e-12).sqrt() * head.norm.weight + head.norm.bias
            scores = torch.stack([x @ words.embeddings.weight[word] + head.bias[word] for word in range(VOCABULARY)])
            losses.append(-torch.log(scores[token].exp() / scores.exp().sum()))
    return torch.stack(losses).mean()


def test_the_loss_by_hand_in_value_and_gradient():
    words, head, method, batch = build(probability=0.5)
    torch.manual_seed(1)
    items = method.extract_items(batch)
    assert len({len(item.tokens) for item in items}) > 1  # otherwise a mean of means would be equal
    torch.manual_seed(1)
    loss, expected = method.loss(batch), by_hand(words, head, items)
    assert_same_gradients(loss.total, expected, [*words.parameters(), *head.parameters()])


def test_a_batch_without_masked_tokens_has_loss_0():
    words, _, method, batch = build()
    items = [MaskedSentence(ids, [], []) for ids in tokenise(batch.sentences)]
    loss = method.loss_fn(batch, method.represent(items))
    assert loss.total == 0
    loss.total.backward()
    assert (words.embeddings.weight.grad == 0).all()


# --- masked tokens ---


def test_15_percent_are_masked_and_80_10_10_of_these():
    text = " ".join(str(4 + position % 20) for position in range(60))  # words 24 to 29 do not occur in the text
    *_, method, batch = build([(f"{text} {number % 20 + 4}",) for number in range(200)])
    before = tokenise(batch.sentences)
    outcomes, hidden, total = {"mask": 0, "random": 0, "same": 0}, 0, 0
    drawn = set()
    for _ in range(20):
        for item, ids in zip(method.extract_items(batch), before, strict=True):
            assert not {ids[position] for position in item.positions} & set(SPECIAL)
            hidden, total = hidden + len(item.positions), total + len(ids) - 2
            for position in item.positions:
                new = item.ids[position]
                outcomes["mask" if new == MASK else "same" if new == ids[position] else "random"] += 1
                drawn.add(new)
    assert hidden / total == pytest.approx(0.15, abs=0.01)
    assert outcomes["mask"] / hidden == pytest.approx(0.8, abs=0.02)
    # one of 26 random words is the word itself
    assert outcomes["random"] / hidden == pytest.approx(0.1 * 25 / 26, abs=0.02)
    assert drawn == {MASK} | set(range(4, VOCABULARY))  # never a special token other than the mask
