"""The memory of a process: Python's garbage collector, and memory that a finished job does not use any more.

The modules of transformers and torch stay loaded until the end. Nevertheless the collector traverses their objects many
times during the import and once more at exit, which takes a large part of the processor time of a short command. So it
is paused meanwhile (:func:`paused`, :func:`skip_at_exit`).

torch computes bfloat16 matrix products on the CPU by oneDNN, which keeps the compiled code of the last 1,024 shapes,
about half a megabyte for each. Ragged batches have new shapes at each step, so :func:`limit_compiled_shapes` lets it
keep those of a step or two. The code lies between the large blocks of tensors, so glibc cannot return these blocks when
they are free: :func:`trim` and :func:`release` do.
"""

import atexit
import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def paused() -> Iterator[None]:
    """Disable garbage collection inside the block; then move all objects to the oldest generation.

    Later collections of the younger generations skip these objects. The collector's settings are restored.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()
            gc.unfreeze()  # moves all objects to the oldest generation, without traversing them
            gc.enable()


def skip_at_exit() -> None:
    """Skip the final collection when this process ends; the system frees its memory anyway."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


SHAPES_VARIABLE = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"


def limit_compiled_shapes(count: int) -> None:
    """Let oneDNN keep the code of ``count`` shapes, if the environment does not say how many.

    Without effect after the first matrix product in bfloat16, at which oneDNN reads the variable.
    """
    os.environ.setdefault(SHAPES_VARIABLE, str(count))


def release() -> None:
    """Collect garbage, and return free memory to the system, in up to a tenth of a second."""
    gc.collect()
    trim()


def trim() -> None:
    """Return free memory to the system, in some milliseconds; does nothing where the C library is not glibc."""
    with suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
