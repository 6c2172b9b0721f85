"""Two real processes: the first tokenises, the other maps its file, which has no name on disk."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import distributed

from nearfar.encoder import tokens
from nearfar.encoder.tokens import TokenStore
from nearfar.training.processes import Processes, leave_process_group
from tests.distributed.processes import run_processes

pytestmark = pytest.mark.long

TEXTS = [f"text {number:{number % 9}}" for number in range(50)]


def character_codes(texts: Sequence[str]) -> tuple[list[list[int]], int]:
    """A tokenizer whose token ids are the letters' code points."""
    return [list(map(ord, text[:10])) for text in texts], sum(len(text) > 10 for text in texts)


def never(texts: Sequence[str]) -> tuple[list[list[int]], int]:
    raise AssertionError(f"tokenises {texts}")


def work(rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=size)
    tokens.BLOCK_SIZE, tokens.FILE_THRESHOLD = 7, 1
    tempfile.tempdir = str(folder / "temporary")
    store = TokenStore(
        never if rank else character_codes, vocabulary=256, broadcast_from_first=Processes().broadcast_from_first
    )
    store.read(TEXTS[:20])
    store.read(TEXTS)
    expected, truncated = character_codes(TEXTS)
    assert list(store.select(TEXTS)) == expected
    assert store.truncated == truncated > 0
    maps = Path("/proc/self/maps").read_text().splitlines()
    assert sum(tempfile.tempdir in line for line in maps) == 1
    assert not list(Path(tempfile.tempdir).iterdir())
    (folder / f"done{rank}").touch()
    leave_process_group()


@pytest.mark.skipif(sys.platform != "linux", reason="files are shared through /proc")
def test_the_second_process_never_tokenises(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    run_processes(work, 2, tmp_path)
    assert sorted(path.name for path in tmp_path.glob("done*")) == ["done0", "done1"]
