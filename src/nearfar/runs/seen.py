"""What a model has seen: the hashes of its training rows, and of the dev rows that chose its step."""

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from nearfar.config import RunConfig
from nearfar.data.fingerprints import row_hashes
from nearfar.disk import SeenHashes


def seen_hashes(
    config: RunConfig,
    *,
    trained: Iterable[Sequence[Sequence[object]]],
    dev: Sequence[Sequence[object]],
    before: SeenHashes | None,
) -> SeenHashes | None:
    """The hashes to save with the model of a run; None with ``--no-fingerprints``.

    The dev rows count only if they choose the step: if the best step is kept, or training stops by ``--patience``.

    Args:
        config: the settings of the run.
        trained: the rows of each objective, as :func:`nearfar.data.fingerprints.row_hashes` takes them.
        dev: the rows of the dev set.
        before: the hashes of the initial model, which the new model inherits; None if they are not known.
    """
    if not config.fingerprints:
        return None
    chooses = config.keep == "best" or config.patience is not None
    rows, dev_rows = row_hashes(chain.from_iterable(trained)), row_hashes(dev if chooses else ())
    seen = SeenHashes(*(np.unique(hashes) for hashes in (*rows, *dev_rows)))
    return seen if before is None else seen.union(before)
