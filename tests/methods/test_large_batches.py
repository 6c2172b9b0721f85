"""Large batches: loss, terms and gradient computed in blocks equal those of the full matrix, in less memory."""

import random

import pytest
import torch

from nearfar.methods.gunel import SupconTextConfig
from nearfar.methods.nli_order import NliOrderConfig
from nearfar.methods.simcse import InfoNceConfig, SimcseSupConfig, SimcseUnsupConfig
from nearfar.objectives import _contrast
from nearfar.types import NliRow
from tests.methods.table_encoder import built
from tests.methods.test_kim import Built
from tests.objectives.checks import LargestTensor

DIM, ROWS, BLOCK = 4, 128, 2**10


def rows(width):
    """Rows of texts, some of which repeat."""
    draw = random.Random(width)
    return [tuple(f"{column} {draw.randrange(3 * ROWS)}" for column in "abc"[:width]) for _ in range(ROWS)]


def nli_rows():
    draw = random.Random(0)
    texts = [f"text {draw.randrange(3 * ROWS)}" for _ in range(160)]
    # three of four hypotheses are entailed, some premises have several
    return [NliRow(f"premise {n // 4 * 3}", text, (0, 0, 0, 2)[n % 4]) for n, text in enumerate(texts)]


MARGIN = {"false_negative_margin": 0.1}
METHODS = {
    "simcse-unsup, margin": (SimcseUnsupConfig, 1, MARGIN),
    "simcse-sup, margin": (SimcseSupConfig, 3, {"mlp": "none", "temperature": 0.2, **MARGIN}),
    "info-nce, all directions": (InfoNceConfig, 2, {"directions": "all", "temperature": 0.2, **MARGIN}),
    "nli-order, both directions": (
        NliOrderConfig,
        0,
        {"temperature": 0.2, "directions": "both", "order_pairs": "batch", "distinct_texts": False, **MARGIN},
    ),
    "supcon-text": (SupconTextConfig, 1, {}),
    "sg": {},
    "sg-opt1, margin": MARGIN,
    "sg-opt, margin": MARGIN,
    "bt, margin": MARGIN,
}
"""Settings of Kim et al. 2021; of the others also the class and the number of texts in a row."""


def build(name, start):
    """A method and its batch, and random representations of the items."""
    shape = (DIM,)
    if isinstance(METHODS[name], dict):
        texts = rows(2 if name.startswith("bt") else 1)
        given = Built(start, name.partition(",")[0], texts, projection="none", temperature=0.2, **METHODS[name])
        method = given.method
        shape = (DIM,) if name.startswith("bt") else (3, DIM)
    else:
        kind, width, settings = METHODS[name]
        targets = [n % 4 for n in range(ROWS)] if kind is SupconTextConfig else None
        texts = rows(width) if width else nli_rows()
        method = built(kind(output="x", **settings), None, DIM, texts, targets=targets, label_names=tuple("abcd"))
        if method.head is not None:
            method.head.float()
    batch = next(method.batches.epoch(0))
    generator = torch.Generator().manual_seed(1)
    return method, batch, torch.randn(len(method.extract_items(batch)), *shape, generator=generator)


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_blocks_give_the_loss_of_the_full_matrix_in_less_memory(name, start, monkeypatch):
    torch.manual_seed(0)
    method, batch, vectors = build(name, start)
    found = []
    for block in (2**40, BLOCK):
        monkeypatch.setattr(_contrast, "BLOCK", block)
        torch.manual_seed(2)
        represented = vectors.clone().requires_grad_()
        with LargestTensor() as largest:
            loss = method.loss_fn(batch, represented)
            loss.total.backward()
        found.append((loss.total.detach(), loss.terms, represented.grad, largest.elements))
    (total, terms, gradient, largest_full), (ours, our_terms, our_gradient, largest_in_blocks) = found
    assert gradient.norm() > 1e-4
    torch.testing.assert_close(ours, total)
    torch.testing.assert_close(our_gradient, gradient, rtol=1e-4, atol=1e-6)
    assert our_terms.keys() == terms.keys()
    for term, value in terms.items():
        torch.testing.assert_close(our_terms[term], value)
    assert terms.get("left_out", torch.tensor(0.5)) not in (0, 1)
    batch_size = len(batch.sentences) if name == "supcon-text" else ROWS
    assert largest_full >= batch_size**2
    assert largest_in_blocks <= 2 * BLOCK < batch_size**2
