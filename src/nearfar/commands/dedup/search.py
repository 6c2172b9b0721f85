"""The search of ``dedup``: vectors of the texts, the nearest other text of each, and groups above a threshold."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from nearfar.commands.encode.progress import progress_bar
from nearfar.commands.encode.work_folder import WorkFolder
from nearfar.config.mining import DedupConfig
from nearfar.neighbours.pairs import Groups, NearestOthers, connect, find_nearest_others

if TYPE_CHECKING:
    import torch

    from nearfar.encoder.encoder import Encoder

SAVE_EVERY = 2**13
"""The nearest neighbours are saved after the search for this number of texts, and at the end."""


def encode_texts(
    work: WorkFolder, encoder: "Encoder", texts: Sequence[str], config: DedupConfig, *, progress: bool
) -> NDArray[np.float32]:
    """The unit vectors of the texts, memory-mapped; those that are not in the folder are encoded."""
    with progress_bar("encoding", len(texts), shown=progress) as advance:
        return work.encode(
            "texts",
            texts,
            encoder.dim,
            lambda some: encoder.encode(some, normalize=True, precision=config.precision),
            advance,
        )


def nearest_others(
    work: WorkFolder, vectors: NDArray[np.float32], device: "torch.device", *, progress: bool
) -> NearestOthers:
    """The nearest other text of each text; continues after the last state in the folder."""
    empty = NearestOthers.empty(len(vectors))
    shapes: dict[str, tuple[int, ...]] = {"scores": (len(vectors),), "ids": (len(vectors),), "done": ()}
    saved = work.arrays(
        "nearest", lambda: {"scores": empty.scores, "ids": empty.ids, "done": np.array(0)}, shapes=shapes
    )
    found = NearestOthers(saved["scores"], saved["ids"], int(saved["done"]))

    def save() -> None:
        work.save("nearest", {"scores": found.scores, "ids": found.ids, "done": np.array(found.done)})

    with _saving_bar("comparing", len(vectors), found.done, save, shown=progress) as on_rows:
        find_nearest_others(vectors, found, device=device, on_rows=on_rows)
    return found


def group_texts(
    work: WorkFolder,
    vectors: NDArray[np.float32],
    near: NearestOthers,
    threshold: float,
    device: "torch.device",
    *,
    progress: bool,
) -> Int64[np.ndarray, " texts"]:
    """The group of each text, numbered in the order of their first texts.

    Only texts whose nearest other text reaches the threshold are compared again.
    """
    close = np.flatnonzero(near.scores >= threshold)
    start = Groups.single(len(vectors))
    start.unite(close, near.ids[close])
    name = f"groups-{threshold!r}"
    shapes: dict[str, tuple[int, ...]] = {"parents": (len(vectors),), "done": ()}
    saved = work.arrays(name, lambda: {"parents": start.parents, "done": np.array(0)}, shapes=shapes)
    groups = Groups(saved["parents"], int(saved["done"]))

    def save() -> None:
        work.save(name, {"parents": groups.parents, "done": np.array(groups.done)})

    with _saving_bar("grouping", len(close), groups.done, save, shown=progress) as on_rows:
        connect(vectors, threshold, groups, among=close, device=device, on_rows=on_rows)
    return np.unique(groups.roots(), return_inverse=True)[1].astype(np.int64)


@contextmanager
def _saving_bar(
    what: str, total: int, done: int, save: Callable[[], None], *, shown: bool
) -> Iterator[Callable[[int], None]]:
    """A progress bar; yields a function that takes the number of rows done, and saves the state now and then."""
    counted = saved = done

    def on_rows(rows: int) -> None:
        nonlocal counted, saved
        advance(rows - counted)
        counted = rows
        if rows - saved >= SAVE_EVERY or rows == total:
            saved = rows
            save()

    with progress_bar(what, total, done=done, shown=shown) as advance:
        yield on_rows
