"""The memory of a process: Python's garbage collector, and memory that a finished job does not use any more.

The modules of transformers and torch stay loaded until the end. Nevertheless the collector traverses their objects many
times during the import and once more at exit, which takes a large part of the processor time of a short command. So it
is paused meanwhile (:func:`paused`, :func:`skip_at_exit`).

torch computes bfloat16 matrix products on the CPU by oneDNN, which keeps the compiled code of the last 1,024 shapes. It
lies between the large blocks of tensors, so glibc cannot return these blocks when they are free. Ragged batches have a
new shape at each step: a process that trains one model after the other grows by about 100 MB for each. So
:data:`release` returns them to the system.
"""

import atexit
import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

GROWTH = 256 << 20
"""Bytes by which the process must have grown since the last release; a release takes up to a tenth of a second."""
STATM = Path("/proc/self/statm")


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


_after_release = [0]
"""How large the process was after the last release."""


def release() -> bool:
    """Return free memory to the system if the process has grown by :data:`GROWTH`; whether it was done.

    Does nothing where the C library is not glibc.
    """
    if private_bytes() - _after_release[0] < GROWTH:
        return False
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
        _after_release[0] = private_bytes()
        return True
    return False


def private_bytes() -> int:
    """Resident memory without what is shared with other processes, such as libraries; 0 where it is not known."""
    with suppress(OSError, ValueError, IndexError):
        fields = STATM.read_text(encoding="ascii").split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
    return 0
