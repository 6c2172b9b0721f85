"""Masks that are computed on the CPU for a loss on a GPU: whole for small batches, block by block for large ones."""

import pytest
import torch

from nearfar.objectives import DirectionMasks, RowMask, ranknet, to_device
from tests.gpu.devices import on_each_device

pytestmark = pytest.mark.long


@on_each_device("block", small=(2**22, 8), whole=(2**22, 8))
def test_the_rows_of_a_mask(device: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearfar.objectives._contrast.BLOCK", block)
    whole = torch.rand(5, 7, generator=torch.Generator().manual_seed(0)) > 0.5
    calls = []

    def rows_of(rows: slice) -> torch.Tensor:
        calls.append(rows)
        return whole[rows]

    masks = DirectionMasks(query_to_doc=RowMask(rows_of, (5, 7))).to(torch.device(device))
    assert masks.doc_to_query is None
    assert masks.query_to_doc is not None
    for rows in (slice(0, 5), slice(1, 3)):
        found = masks.query_to_doc[rows]
        assert found.device.type == device
        assert torch.equal(found.cpu(), whole[rows])
    assert len(calls) == (1 if block > 35 else 2)


@on_each_device("", small=((),), whole=((),))
def test_an_order_by_targets_on_the_cpu(device: str) -> None:
    scores = torch.randn(6, generator=torch.Generator().manual_seed(0))
    targets, groups = torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([0, 0, 0, 1, 1, 1])
    expected = ranknet(scores, targets, groups, temperature=0.1)
    assert len(expected) == 6
    found = ranknet(to_device(scores, torch.device(device)), targets, groups, temperature=0.1)
    torch.testing.assert_close(found.cpu(), expected)
