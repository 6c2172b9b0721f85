"""Mocks of an encoder and of the training loop for the tests of methods."""

from types import SimpleNamespace

import torch
from torch import nn

from nearfar.data.batching import TextBatch
from nearfar.data.rows import TextData
from nearfar.encoder.training_encoder import TrainingEncoder
from nearfar.methods import BuildContext
from nearfar.registry import find_entry, name_of
from nearfar.training.processes import Processes


class Table(nn.Module):
    """A vector for each distinct item. Records its calls; adds different ``noise`` to each element of the output."""

    def __init__(self, items, dim, *, noise=0.0):
        super().__init__()
        self.numbers = {item: number for number, item in enumerate(dict.fromkeys(items))}
        self.vectors = nn.Embedding(len(self.numbers), dim, dtype=torch.float64)
        self.noise, self.calls = noise, []

    def forward(self, items):
        self.calls.append(list(items))
        vectors = self.vectors(torch.tensor([self.numbers[getattr(item, "text", item)] for item in items]))
        positions = torch.arange(vectors.numel(), dtype=vectors.dtype).view_as(vectors)
        return vectors + self.noise * torch.sin(7 * positions)


def built(config, embed, dim, rows, *, batch_size=None, prompts=("", ""), **data):
    """The method of ``config`` on rows of texts or NLI rows, with the head in float64; ``embed`` is the encoder."""
    query, document = prompts
    encoder = SimpleNamespace(dim=dim, add_dense=lambda: None)
    training = SimpleNamespace(encoder=encoder, embed=embed, read=list, query_prompt=query, document_prompt=document)
    method = _build(config, BuildContext(training, batch_size or len(rows)), rows, **data)
    if method.head is not None:
        method.head.double()
    return method


def built_on(config, encoder, rows, **data):
    """The method of ``config`` on an encoder, with all rows in one batch."""
    broadcast = Processes().broadcast_from_first
    training = TrainingEncoder(encoder, max_length=None, bf16=False, broadcast_from_first=broadcast)
    return _build(config, BuildContext(training, len(rows)), rows, **data)


def _build(config, context, rows, *, targets=None, label_names=()):
    if hasattr(rows[0], "label"):
        data = TextData(rows, None, ("rows",), 0, 0)
    else:
        data = TextData(rows, targets, ("rows",), 0, 0, label_names)
    return find_entry(name_of(type(config))).build(config, context, data).method


def assert_same_gradients(total, expected, weights, **tolerance):
    """Two losses are equal, and so are their gradients, none of which is 0."""
    torch.testing.assert_close(total, expected, **tolerance)
    ours, theirs = torch.autograd.grad(total, weights), torch.autograd.grad(expected, weights)
    assert all(gradient.norm() > 1e-4 for gradient in theirs)
    torch.testing.assert_close(ours, theirs, **tolerance)


def batch_of(*rows):
    """A batch of rows (item, target), in this order; an item is a tuple of texts."""
    sentences = list(dict.fromkeys(text for item, _ in rows for text in item))
    texts = zip(*(item for item, _ in rows), strict=True)
    columns = tuple([sentences.index(text) for text in column] for column in texts)
    return TextBatch(sentences, columns, [target for _, target in rows], list(range(len(rows))))


def cosine(a, b):
    return (a @ b) / ((a @ a).sqrt() * (b @ b).sqrt())
