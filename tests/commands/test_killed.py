"""search and dedup, killed or stopped by Ctrl-C in a process of their own, end as if they were undisturbed.

The other verbs that encode many texts continue by the same parts.
"""

import json
import os
from pathlib import Path

import pytest

from tests.child_programs import report_of
from tests.tiny import save_tiny, sentences

pytestmark = [pytest.mark.long, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")]
COMMANDS = {
    "search": "search dog --model tiny --input corpus.txt --index OUT.index --output OUT.tsv",
    "dedup": "dedup --model tiny --input corpus.txt --threshold 0.9 --output OUT.txt --groups OUT.tsv",
}
STOPS = {"search": [("SIGKILL", 0.3), ("SIGINT", 0.7), ("SIGKILL", 1.0)]}
STOPS["dedup"] = [(name, share) for name in ("SIGKILL", "SIGINT") for share in (0.0, 0.3, 0.7, 1.0)]
"""Verb -> signals, and after which share of the flushes to the disk they come."""
SCRIPT = """if True:
    import json, os, signal, sys
    from nearfar.cli import main
    from nearfar.commands import dedup as _dedup
    from nearfar.commands.encode import vectors
    from nearfar.commands.search import command as _search
    from nearfar.encoder import encoder as _encoder

    vectors.PART_TEXTS = 7
    fsync, count = os.fsync, 0

    def run(name, signal_name, at=None):
        "Run the command in a process of its own, which gets the signal before a number of flushes."
        child = os.fork()
        if child == 0:
            def counted(file):
                global count
                if count == at:
                    os.kill(os.getpid(), getattr(signal, signal_name))
                count += 1
                fsync(file)
            os.fsync, os.environ["HF_HUB_OFFLINE"] = counted, "1"
            status = main(command.replace("OUT", name).split())
            if signal_name == "COUNT":
                status = count if status == 0 else 0
            sys.stdout.flush()
            os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    command, stops = sys.argv[1], json.loads(sys.argv[2])
    flushes, found = run("whole", "COUNT"), []
    for name, share in stops:
        at = round(share * (flushes - 1))
        stopped = run(f"{name}-{at}", name, at)
        found.append((f"{name}-{at}", stopped, run(f"{name}-{at}", "NONE")))
    print("REPORT", json.dumps([flushes, found]))
"""


def contents(folder: Path, name: str) -> dict[str, bytes]:
    """The files of an output; the manifest of an index has a random generation."""
    files = [*folder.glob(f"{name}.t*"), *folder.glob(f"{name}.index/*")]
    own = {str(file.relative_to(folder)).replace(name, "OUT", 1): file for file in files}
    return {name: file.read_bytes() for name, file in own.items() if not name.endswith("manifest.json")}


@pytest.mark.parametrize("verb", ["search", pytest.param("dedup", marks=pytest.mark.nightly)])
def test_a_process_that_ends_at_any_moment_is_continued(verb: str, tmp_path: Path) -> None:
    save_tiny(tmp_path / "tiny")
    (tmp_path / "corpus.txt").write_text("\n".join(dict.fromkeys(sentences(40, seed=3, longest=9))) + "\n")
    flushes, found = report_of(SCRIPT, COMMANDS[verb], json.dumps(STOPS[verb]), folder=tmp_path)
    assert flushes >= 6
    assert len(found) == len(STOPS[verb])
    whole = contents(tmp_path, "whole")
    assert len(whole) == {"search": 5, "dedup": 2}[verb]
    for name, stopped, again in found:
        assert stopped == (-9 if name.startswith("SIGKILL") else 130), name
        was_complete = any(tmp_path.glob(f"{name}.t*"))  # then the command says that its output exists
        assert again == 0 or (was_complete and again == 2), name
        assert contents(tmp_path, name) == whole, name
    assert not list(tmp_path.glob("*.vectors/*.npy"))
