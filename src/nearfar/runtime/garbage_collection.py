"""Python's garbage collector: held back where it only costs time, while large libraries load and as the program ends.

The modules of transformers and torch stay until the end. The collector visits their objects again and again while they
load, and once more as Python leaves, which takes a good part of the processor time of a short command.
"""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Collect nothing inside; what was made inside then counts as old, so that the next collections pass it over.

    Nothing lasts: afterwards the collector has the settings that it had.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # else what the program froze itself would be thawed too
            gc.freeze()
            gc.unfreeze()  # into the oldest generation, without a visit to each object
        gc.enable()


def skip_at_exit() -> None:
    """Visit no object as this process ends: its memory goes back to the system at once."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
