"""search, mine and dedup, killed or stopped by Ctrl-C in a process of their own, end as if they were undisturbed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nearfar
from tests.tiny import save_tiny, sentences

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork"),
]
TEXTS = list(dict.fromkeys(sentences(60, seed=3, longest=9)))
COMMANDS = {
    "search": "search dog --model tiny --input corpus.txt --index OUT.index --output OUT.tsv",
    "mine": "mine --model tiny --data pairs.tsv --corpus corpus.txt --relative-margin none --output OUT.tsv",
    "dedup": "dedup --model tiny --input corpus.txt --threshold 0.9 --output OUT.txt --groups OUT.tsv",
}
SCRIPT = """if True:
    import json, os, signal, sys
    from nearfar.cli import main
    from nearfar.commands import dedup as _dedup
    from nearfar.commands.encode import vectors
    from nearfar.commands.mine import command as _mine
    from nearfar.commands.mine import search as mine_search
    from nearfar.commands.search import command as _search
    from nearfar.encoder import encoder as _encoder

    vectors.PART_TEXTS, mine_search.CHUNK = 7, 10
    fsync, count = os.fsync, 0

    def run(argv, name, at=None):
        "Run a command in a process of its own, which gets the signal before a number of flushes to the disk."
        child = os.fork()
        if child == 0:
            def counted(file):
                global count
                if count == at:
                    os.kill(os.getpid(), getattr(signal, name))
                count += 1
                fsync(file)
            os.fsync = counted
            status = main(argv)
            if name == "COUNT":
                status = count if status == 0 else 0
            sys.stdout.flush()
            os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    command, found = sys.argv[1], []
    flushes = run(command.replace("OUT", "whole").split(), "COUNT")
    for name in ("SIGKILL", "SIGINT"):
        for at in sorted({round(share * (flushes - 1)) for share in (0, 0.3, 0.7, 1)}):
            argv = command.replace("OUT", f"{name}-{at}").split()
            stopped = run(argv, name, at)
            again = run(argv, "NONE")
            found.append((f"{name}-{at}", stopped, again))
    print("FOUND", json.dumps([flushes, found]))
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    save_tiny(tmp_path / "tiny")
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS[20:]) + "\n")
    pairs = zip(TEXTS[:10], TEXTS[10:20], strict=True)
    (tmp_path / "pairs.tsv").write_text("anchor\tpositive\n" + "".join("\t".join(pair) + "\n" for pair in pairs))
    return tmp_path


def contents(folder: Path, name: str) -> dict[str, bytes]:
    """The files of an output; the manifest of an index has a random generation, the summary its own path."""
    files = [*folder.glob(f"{name}.t*"), *folder.glob(f"{name}.index/*")]
    own = {str(file.relative_to(folder)).replace(name, "OUT", 1): file for file in files}
    skipped = ("manifest.json", ".summary.json")
    return {name: file.read_bytes() for name, file in own.items() if not name.endswith(skipped)}


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=[] if verb == "search" else pytest.mark.nightly) for verb in COMMANDS]
)
def test_a_process_that_ends_at_any_moment_is_continued(verb: str, workspace: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(nearfar.__file__).parents[1]), "HF_HUB_OFFLINE": "1"}
    completed = subprocess.run(
        [sys.executable, "-c", SCRIPT, COMMANDS[verb]],
        cwd=workspace,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    line = next((line for line in completed.stdout.splitlines() if line.startswith("FOUND ")), None)
    assert line is not None, completed.stdout + completed.stderr
    flushes, found = json.loads(line.removeprefix("FOUND "))
    assert flushes >= 6, completed.stdout + completed.stderr
    assert len(found) == 8
    whole = contents(workspace, "whole")
    assert len(whole) == {"search": 5, "mine": 1, "dedup": 2}[verb]
    for name, stopped, again in found:
        assert stopped == (-9 if name.startswith("SIGKILL") else 130), (name, completed.stdout, completed.stderr)
        was_complete = any(workspace.glob(f"{name}.t*"))  # then the command says that its output exists
        assert again == 0 or (was_complete and again == 2), (name, completed.stdout, completed.stderr)
        assert contents(workspace, name) == whole, name
    assert not list(workspace.glob("*.vectors/*.npy"))
