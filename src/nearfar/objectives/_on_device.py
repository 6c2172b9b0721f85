"""Masks that depend on text ids alone, computed on the CPU for losses on a GPU, so that the GPU never has to wait.

Operations whose shapes depend on values, such as ``unique``, make Python wait for the GPU, and a mask takes dozens of
short operations, each of which a GPU needs longer to start than a CPU to finish.
"""

import torch

from nearfar.objectives._candidate_masks import RowMask
from nearfar.objectives._contrast_targets import fits_in_one_block
from nearfar.objectives._info_nce_directions import DirectionMasks
from nearfar.runtime.transfer import to_device


def rows_on_device(mask: RowMask, anchors: int, candidates: int, device: torch.device) -> RowMask:
    """The same mask as ``mask``, which takes anchor indices on the CPU, for anchor indices on ``device``.

    The mask of a batch that is computed in one block is computed once, and that of a larger one block by block.

    >>> mask = rows_on_device(lambda rows: rows[:, None] == torch.arange(2), 2, 2, torch.device("cpu"))
    >>> mask(torch.tensor([1]))
    tensor([[False,  True]])
    """
    if device.type == "cpu":
        return mask
    if fits_in_one_block(anchors, candidates):
        whole = to_device(mask(torch.arange(anchors)), device)
        return lambda rows: whole[rows]
    return lambda rows: to_device(mask(rows.cpu()), device)


def masks_on_device(masks: DirectionMasks, batch: int, documents: int, device: torch.device) -> DirectionMasks:
    """:func:`rows_on_device` for each direction of a batch with ``batch`` anchors and ``documents`` documents."""
    candidates = {"query_to_doc": documents, "doc_to_query": batch, "query_to_query": batch, "doc_to_doc": documents}
    given = {name: mask for name, mask in masks._asdict().items() if mask is not None}
    return masks._replace(
        **{name: rows_on_device(mask, batch, candidates[name], device) for name, mask in given.items()}
    )
