"""An array file that cannot be read is an error that names it, not a damaged index."""

import errno
from pathlib import Path

import numpy as np
import pytest

from nearfar import NearfarError
from nearfar.neighbours.growing import GrowingArray


def fail(*_: object, **__: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = GrowingArray(tmp_path / "x.npy", "<f4", 2)
    array.append(0, np.ones((3, 2), np.float32))
    assert not array.is_damaged(3)
    assert array.is_damaged(4)
    with monkeypatch.context() as patch:
        patch.setattr(np.lib.format, "read_magic", fail)
        with pytest.raises(NearfarError, match=r"x\.npy: cannot be read \(Input/output error\)\.$"):
            array.is_damaged(3)
        patch.setattr(np, "memmap", fail)
        with pytest.raises(NearfarError, match=r"x\.npy: cannot be read \(Input/output error\)\.$"):
            array.read(3)
    assert array.read(3).tolist() == [[1, 1]] * 3
