"""Large batches: loss, terms and gradient computed in blocks equal those of the full matrix, in less memory."""

import random

import pytest
import torch

from nearfar.data.batching import NliBatches, TextBatches
from nearfar.methods.gunel import SupconTextConfig, supcon_text
from nearfar.methods.kim import BtConfig, SgConfig, back_translation, self_guided
from nearfar.methods.nli_order import NliOrderConfig
from nearfar.methods.nli_order import nli_order as build_nli_order
from nearfar.methods.simcse import InfoNceConfig, SimcseSupConfig, SimcseUnsupConfig, contrastive_method, unsupervised
from nearfar.objectives import _contrast
from nearfar.types import NliRow
from tests.objectives.checks import LargestTensor

DIM, ROWS, BLOCK = 4, 128, 2**10


def rows(width):
    """Rows of texts, some of which repeat."""
    draw = random.Random(width)
    return [tuple(f"{column} {draw.randrange(3 * ROWS)}" for column in "abc"[:width]) for _ in range(ROWS)]


def batches(width, **more):
    return TextBatches(rows(width), ROWS, **more)


def simcse_sup(**settings):
    settings = {"hard_negative_weight": 0.5, "temperature": 0.2} | settings
    return contrastive_method(SimcseSupConfig(output="x", mlp="none", **settings), None, DIM, batches(3))


def simcse_unsup(**settings):
    return unsupervised(SimcseUnsupConfig(output="x", **settings), None, DIM, batches(1))


def info_nce(**settings):
    return contrastive_method(InfoNceConfig(output="x", **settings), None, DIM, batches(2))


def nli_order(**settings):
    draw = random.Random(0)
    texts = [f"text {draw.randrange(3 * ROWS)}" for _ in range(160)]
    # three of four hypotheses are entailed, some premises have several
    nli = [NliRow(f"premise {n // 4 * 3}", text, (0, 0, 0, 2)[n % 4]) for n, text in enumerate(texts)]
    config = NliOrderConfig(output="x", **{"temperature": 0.2, "order_pairs": "batch", **settings})
    return build_nli_order(config, None, NliBatches(nli, len(nli)))


def bt(**settings):
    config = BtConfig(output="x", projection=5, temperature=0.2, **settings)
    return back_translation(config, None, DIM, batches(2), head_std=0.5)


def kim(variant, **settings):
    config = SgConfig(output="x", **{"projection": 5, "temperature": 0.2, "drift_weight": 0.0} | settings)
    drift = {"drift": lambda: torch.zeros(()), "variant": variant, "head_std": 0.5}
    return self_guided(config, None, None, DIM, batches(1), **drift)


METHODS = {
    "simcse-unsup": lambda: simcse_unsup(temperature=0.2),
    "simcse-unsup, margin": lambda: simcse_unsup(false_negative_margin=0.1),
    "simcse-sup": simcse_sup,
    "simcse-sup, margin": lambda: simcse_sup(false_negative_margin=0.1),
    "info-nce": lambda: info_nce(similarity="dot", temperature=2.0),
    "info-nce, all directions": lambda: info_nce(directions="all", false_negative_margin=0.1, temperature=0.2),
    "nli-order": nli_order,
    "nli-order, both directions, margin": lambda: nli_order(directions="both", false_negative_margin=0.1),
    "sg": lambda: kim("sg"),
    "sg-opt1, margin": lambda: kim("opt1", false_negative_margin=0.1),
    "sg-opt2": lambda: kim("opt2"),
    "sg-opt": lambda: kim("opt3"),
    "sg-opt, margin": lambda: kim("opt3", false_negative_margin=0.1),
    "bt, margin": lambda: bt(false_negative_margin=0.1),
    "supcon-text": lambda: supcon_text(
        SupconTextConfig(output="x"), None, batches(1, targets=[n % 4 for n in range(ROWS)])
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_blocks_give_the_loss_of_the_full_matrix_in_less_memory(name, monkeypatch):
    torch.manual_seed(0)
    method = METHODS[name]()
    (batch,) = method.batches.epoch(0)
    items = len(method.extract_items(batch))
    shape = (items, 3, DIM) if name.startswith("sg") else (items, DIM)
    vectors = torch.randn(shape, generator=torch.Generator().manual_seed(1))
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
