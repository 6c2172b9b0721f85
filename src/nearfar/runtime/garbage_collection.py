"""Pauses Python's garbage collector while large libraries are imported and when the program ends.

The modules of transformers and torch stay loaded until the end. Nevertheless the collector traverses their objects many
times during the import and once more at exit, which takes a large part of the processor time of a short command.
"""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Disable garbage collection inside the block; then move all objects to the oldest generation.

    Later collections of the younger generations skip these objects. The collector's settings are restored.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # otherwise unfreeze would also affect objects frozen by the program
            gc.freeze()
            gc.unfreeze()  # moves all objects to the oldest generation, without traversing them
        gc.enable()


def skip_at_exit() -> None:
    """Skip the final collection when this process ends; the system frees its memory anyway."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
