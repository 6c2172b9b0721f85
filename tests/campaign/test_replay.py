"""replay.py: which states a power loss can leave, for short programs whose states are known."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign import shim
from tests.campaign.replay import Disk
from tests.campaign.trace import read_log, settings

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(shim.library() is None, reason="needs Linux and a C compiler")]
HEAD = """if True:
    import os
    def write(name, text):
        with open(name, 'w') as file:
            file.write(text)
    def flush(name):
        file = os.open(name, os.O_RDONLY)
        os.fsync(file)
        os.close(file)
"""


def disks(program: str, folder: Path, *, ordered: bool) -> tuple[Disk, Path]:
    """Run a program on a folder that has ``old`` with the text "old", and replay it."""
    start, work, content = folder / "start", folder / "work", folder / "bytes"
    for path in (start, work, content):
        path.mkdir()
    for path in (start, work):
        (path / "old").write_text("old")
    environment = {**os.environ, "LD_PRELOAD": str(shim.library())}
    environment |= settings(work, log=folder / "log", content=content)
    subprocess.run([sys.executable, "-c", HEAD + program], cwd=work, env=environment, check=True)
    disk = Disk(start, ordered=ordered)
    for call in read_log(folder / "log"):
        disk.apply(call, content)
    return disk, work


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def states(program: str, folder: Path, *, ordered: bool) -> set[tuple[tuple[str, bytes], ...]]:
    """The states that 400 power losses at the end of a program leave."""
    disk, work = disks(program, folder, ordered=ordered)
    found = set()
    for number in range(400):
        place = folder / f"state-{number}"
        disk.after_power_loss(random.Random(f"{number}")).write_to(place)
        found.add(tuple(sorted(tree(place).items())))
    disk.write_to(folder / "complete")
    assert tree(folder / "complete") == tree(work)
    return found


OLD = ("old", b"old")
REPLACED = "    write('new', 'abc'); {}os.replace('new', 'old'){}"


@pytest.mark.parametrize("ordered", [False, True])
def test_a_file_that_is_flushed_and_then_renamed_is_the_old_or_the_new_one(ordered: bool, tmp_path: Path) -> None:
    found = states(REPLACED.format("flush('new'); ", ""), tmp_path, ordered=ordered)
    assert found >= {(("old", b"abc"),), (("new", b"abc"), OLD)}
    assert found <= {(("old", b"abc"),), (("new", b"abc"), OLD), (OLD,)}


@pytest.mark.parametrize("ordered", [False, True])
def test_a_file_that_is_renamed_without_a_flush_may_be_empty_torn_or_zeros(ordered: bool, tmp_path: Path) -> None:
    contents = {dict(state)["old"] for state in states(REPLACED.format("", ""), tmp_path, ordered=ordered)}
    assert contents == {b"old", b"", b"a", b"ab", b"abc", b"\0\0\0"}


@pytest.mark.parametrize("ordered", [False, True])
def test_what_is_flushed_with_its_entry_is_kept(ordered: bool, tmp_path: Path) -> None:
    program = REPLACED.format("flush('new'); ", "; flush('.')")
    assert states(program, tmp_path, ordered=ordered) == {(("old", b"abc"),)}


def test_an_ordered_disk_keeps_all_entries_before_a_flush(tmp_path: Path) -> None:
    program = "    os.mkdir('a'); write('a/x', 'x'); flush('a/x')"
    (tmp_path / "one").mkdir()
    assert states(program, tmp_path / "one", ordered=True) == {(("a/x", b"x"), OLD)}
    (tmp_path / "two").mkdir()
    assert states(program, tmp_path / "two", ordered=False) == {(("a/x", b"x"), OLD), (OLD,)}


def test_a_disk_without_order_may_keep_a_later_entry_of_another_folder(tmp_path: Path) -> None:
    program = "    os.mkdir('a'); os.mkdir('b'); flush('.'); write('a/x', ''); write('b/y', '')"
    (tmp_path / "one").mkdir()
    later = {(("b/y", b""), OLD)}
    assert later <= states(program, tmp_path / "one", ordered=False)
    (tmp_path / "two").mkdir()
    assert not later & states(program, tmp_path / "two", ordered=True)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_file_is_never_lost_by_a_rename_to_another_folder(ordered: bool, tmp_path: Path) -> None:
    program = "    os.mkdir('a'); flush('.'); os.rename('old', 'a/new')"
    found = states(program, tmp_path, ordered=ordered)
    assert found >= {(OLD,), (("a/new", b"old"),)}
    assert ((("a/new", b"old"), OLD) in found) is not ordered
    assert () not in found


def test_changes_inside_a_file(tmp_path: Path) -> None:
    program = (
        "    f = open('old', 'r+b', 0); f.seek(1); f.write(b'XY'); os.fsync(f.fileno()); f.truncate(2); f.write(b'Z')"
    )
    contents = {dict(state)["old"] for state in states(program, tmp_path, ordered=False)}
    assert contents == {b"oXY", b"oX", b"oX\0Z", b"oX\0\0"}


def test_the_rename_of_safetensors_is_inferred(tmp_path: Path) -> None:
    program = "    import numpy; from safetensors.numpy import save_file; save_file({'x': numpy.arange(9)}, 'x')"
    disk, work = disks(program, tmp_path, ordered=False)
    assert "rename" not in [call.kind for call in read_log(tmp_path / "log")]
    disk.write_to(tmp_path / "complete")
    assert tree(tmp_path / "complete") == tree(work)


def test_what_is_not_flushed_is_listed(tmp_path: Path) -> None:
    program = """
    os.mkdir('made')
    write('made/new', 'abc')
    flush('made')
    write('other', 'x')
    flush('.')
    os.remove('old')
    """
    disk, _ = disks(program, tmp_path, ordered=False)
    assert disk.not_flushed() == ["made/new", "other", "-old"]
