"""Returns memory that a finished job does not use any more to the system.

torch computes bfloat16 matrix products on the CPU by oneDNN, which keeps the compiled code of the last 1,024 shapes. It
lies between the large blocks of tensors, so glibc cannot return these blocks when they are free. Ragged batches have a
new shape at each step: a process that trains one model after the other grows by about 100 MB for each.
"""

import ctypes
import gc
import os
from contextlib import suppress
from pathlib import Path

GROWTH = 256 << 20
"""Bytes by which the process must have grown since the last release; a release takes up to a tenth of a second."""
STATM = Path("/proc/self/statm")


class Releaser:
    """Knows how large the process was after the last release."""

    def __init__(self) -> None:
        self._last = 0

    def release(self) -> bool:
        """Return free memory to the system if the process has grown by :data:`GROWTH`; whether it was done.

        Does nothing where the C library is not glibc.
        """
        if private_bytes() - self._last < GROWTH:
            return False
        gc.collect()
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
            self._last = private_bytes()
            return True
        return False


def private_bytes() -> int:
    """Resident memory without what is shared with other processes, such as libraries; 0 where it is not known."""
    with suppress(OSError, ValueError, IndexError):
        fields = STATM.read_text(encoding="ascii").split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
    return 0


release = Releaser().release
"""For the jobs of this process."""
