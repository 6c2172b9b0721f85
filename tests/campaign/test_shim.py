"""shim.c sees what the libraries that nearfar writes with do, kills at a call and fails a call."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign import shim
from tests.campaign.trace import Call, read_log, settings

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(shim.library() is None, reason="needs Linux and a C compiler")]


def run(program: str, folder: Path, **shim_settings: str) -> tuple[int, list[Call]]:
    """Run a Python program in ``folder/work``; returns its exit status and the log."""
    work, content, log = folder / "work", folder / "bytes", folder / "log"
    for path in (work, content):
        path.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    environment = {**os.environ, "LD_PRELOAD": str(shim.library())}
    environment |= settings(work, log=log, content=content, **shim_settings)
    done = subprocess.run([sys.executable, "-c", program], cwd=work, env=environment, check=False, stderr=sys.stdout)
    return done.returncode, read_log(log) if log.exists() else []


LIBRARIES = {
    "text": "with open('x', 'w') as f: f.write('one'); f.flush(); f.write('two')",
    "append": "open('x', 'w').write('one'); open('x', 'a').write('two')",
    "numpy": "import numpy; numpy.save('x', numpy.arange(5000.)); numpy.save(open('y', 'wb'), numpy.arange(9))",
    "npz": "import numpy; numpy.savez('x', one=numpy.arange(7), two=numpy.arange(3))",
    "parquet": "import pyarrow as pa, pyarrow.parquet as pq; pq.write_table(pa.table({'x': [1, 2]}), 'x')",
    "safetensors": "import numpy; from safetensors.numpy import save_file; save_file({'x': numpy.arange(9)}, 'x')",
    "copies": "import shutil; open('y', 'wb').write(b'0' * 70000); shutil.copyfile('y', 'x')",
    "vectors": "import os; f = os.open('x', 65); os.writev(f, [b'one', b'', b'two']); os.pwrite(f, b'six', 3)",
    "truncated": "open('x', 'w').write('onetwo'); import os; os.truncate('x', 4); open('y', 'wb').truncate(3)",
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_bytes_of_all_writes_are_the_files(library: str, tmp_path: Path) -> None:
    status, calls = run(LIBRARIES[library], tmp_path)
    assert status == 0
    files: dict[int, bytearray] = {}
    for call in calls:
        content = files.setdefault(call.inode, bytearray())
        if call.kind == "create" and call.size & os.O_TRUNC:
            content.clear()
        if call.kind == "write" and call.result > 0:
            written = (tmp_path / "bytes" / str(call.number)).read_bytes()
            assert len(written) == call.result
            content.extend(b"\0" * (call.offset - len(content)))
            content[call.offset : call.offset + len(written)] = written
        if call.kind == "truncate":
            inode = call.inode or next(one.inode for one in calls if one.path == call.path and one.inode)
            files[inode] = bytearray(bytes(files[inode]).ljust(call.offset, b"\0")[: call.offset])
    found = {file.stat().st_ino: file.read_bytes() for file in (tmp_path / "work").iterdir()}
    assert found
    assert {inode: bytes(files[inode]) for inode in found} == found
    assert [call.number for call in calls] == list(range(1, len(calls) + 1))


NAMES = """if True:
    import os, shutil
    os.makedirs('a/b'); open('a/b/x y%', 'w').close(); os.rename('a/b/x y%', 'a/z'); os.link('a/z', 'w')
    folder = os.open('a', os.O_RDONLY); os.fsync(folder); os.close(folder)
    os.symlink('../up', 'l'); os.unlink('w'); os.chdir('a'); shutil.rmtree('../a/../a/b'); os.mkdir('b', dir_fd=None)
    open('/dev/null', 'w').close()
"""


def test_names_are_relative_to_the_root(tmp_path: Path) -> None:
    status, calls = run(NAMES, tmp_path)
    assert status == 0
    assert [(call.kind, call.path, call.path2) for call in calls if call.kind not in ("open", "close")] == [
        ("mkdir", "a", ""),
        ("mkdir", "a/b", ""),
        ("create", "a/b/x y%", ""),
        ("rename", "a/b/x y%", "a/z"),
        ("link", "a/z", "w"),
        ("sync", "a", ""),
        ("link", "l", "../up"),
        ("unlink", "w", ""),
        ("unlink", "a/b", ""),
        ("mkdir", "a/b", ""),
    ]


STEPS = "import os; open('x', 'w').close(); os.rename('x', 'y'); os.unlink('y')"  # create, close, rename, unlink


@pytest.mark.parametrize(
    ("moment", "left"), [("before:3", ["x"]), ("after:3", ["y"]), ("after:4", []), ("before:1", [])]
)
def test_a_process_is_killed_before_or_after_a_call(moment: str, left: list[str], tmp_path: Path) -> None:
    status, calls = run(STEPS, tmp_path, kill=moment)
    assert status == -9
    assert len(calls) == int(moment.partition(":")[2])
    assert os.listdir(tmp_path / "work") == left


def test_a_call_that_is_never_made_kills_nothing(tmp_path: Path) -> None:
    status, calls = run(STEPS, tmp_path, kill="before:5")
    assert status == 0
    assert len(calls) == 4


FAILURES = """if True:
    import errno, os
    def attempt(action):
        try:
            print('=', action())
        except OSError as error:
            print('=', errno.errorcode[error.errno])
    f = os.open('x', os.O_CREAT | os.O_RDWR)                # 1
    for _ in range(3):
        attempt(lambda: os.write(f, b'four'))               # 2 3 4
    attempt(lambda: os.pread(f, 4, 0))                      # 5
    attempt(lambda: os.open('y', os.O_CREAT | os.O_RDWR))   # 6
    attempt(lambda: os.ftruncate(f, 1))                     # 7
    attempt(lambda: os.ftruncate(f, 100))                   # 8
    attempt(lambda: os.rename('x', 'z'))                    # 9
"""


@pytest.mark.parametrize(
    ("fail", "expected"),
    [
        ("3:ENOSPC", "4 ENOSPC 4 b'four' 4 None None None"),
        ("3:28", "4 ENOSPC 4 b'four' 4 None None None"),
        ("3:short", "4 2 4 b'four' 4 None None None"),
        ("5:short", "4 4 4 b'fo' 4 None None None"),
        ("3:ENOSPC:always", "4 ENOSPC ENOSPC b'four' ENOSPC None ENOSPC None"),
        ("9:EACCES", "4 4 4 b'four' 4 None None EACCES"),
        ("5:EIO:always", "4 4 4 EIO 4 None None None"),
    ],
)
def test_a_call_fails(fail: str, expected: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, calls = run(FAILURES, tmp_path, fail=fail)
    assert status == 0
    assert [line[2:] for line in capfd.readouterr().out.splitlines() if line.startswith("= ")] == expected.split()
    assert len([call for call in calls if call.result < 0]) == sum(word[0] == "E" for word in expected.split())


CHILD = (
    "import os, subprocess, sys; open('x', 'w').close(); subprocess.run([sys.executable, '-c', 'open(\"y\", \"w\")'])"
)


def test_children_count_on(tmp_path: Path) -> None:
    forks = "import os; open('x', 'w').close(); os.fork() or os._exit(open('y', 'w').close() or 0); os.wait()"
    assert [call.number for call in run(forks, tmp_path)[1]] == [1, 2, 3, 4]
    assert [call.number for call in run(CHILD, tmp_path)[1]] == [1, 2, 1, 2]
    counted = run(CHILD, tmp_path, state=str(tmp_path / "state"))[1]
    assert [call.number for call in counted] == [1, 2, 3, 4]
    assert len({call.process for call in counted}) == 2


def test_a_malformed_failure_is_refused(tmp_path: Path) -> None:
    assert run("open('x', 'w')", tmp_path, fail="3:ENOPE")[0] == 97
