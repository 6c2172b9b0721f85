"""The generated sets of the package: what they promise, and that their script writes them."""

import gzip
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nearfar.data import named_sets
from nearfar.data.rows import load_nli, load_pairs
from nearfar.data.triplets import load_tuples

ROOT = Path(__file__).parents[2]
FOLDER = Path(named_sets.__file__).parent / "microworld"


def texts_of(rows) -> set[str]:
    return {text for row in rows for text in row[:2]}


@pytest.mark.long
def test_the_rows_have_not_changed() -> None:
    # a change would invalidate all reported results on them
    rows = (load_nli("microworld").rows, load_pairs("microworld:dev"), load_pairs("microworld"))
    assert hashlib.sha256(repr(rows).encode()).hexdigest()[:16] == "368ceba4da79a280"
    assert [len(part) for part in rows] == [4393, 400, 800]
    pairs = load_tuples("microworld-paraphrases", columns=("any", "other")).rows
    assert (len(pairs), len(texts_of(pairs))) == (3000, 6000)


@pytest.mark.nightly
def test_the_script_writes_the_files(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    command = [sys.executable, "studies/microworld/write.py", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    names = sorted(path.name for path in FOLDER.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for name in names:
        # zlib may pack differently on another machine
        assert gzip.decompress((tmp_path / name).read_bytes()) == gzip.decompress((FOLDER / name).read_bytes()), name
