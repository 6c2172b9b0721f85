"""A few cases of the campaign, in forks of this process; its checks find what is wrong on purpose."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.campaign import disturbed, scenarios, shim
from tests.campaign.disturbed import continue_and_compare, kill
from tests.campaign.forks import Done, in_fork
from tests.campaign.scenarios import SCENARIOS, Scenario, start_state, undisturbed
from tests.campaign.verdict import wrong_ending
from tests.child_programs import ROOT, environment

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and memfd_create")


@pytest.mark.long
def test_a_checkpoint_stands_whenever_a_run_is_killed(tmp_path: Path) -> None:
    """The old one is deleted only when the new one has its name; a run that was killed then continues."""
    scenario = SCENARIOS["train scl"]
    whole = undisturbed(scenario, tmp_path)
    first, second, *_ = [call for call in whole.calls if call.kind == "rename" and call.path2 == scenario.kept]
    between = [call for call in whole.calls[first.number : second.number] if call.kind in ("rename", "unlink")]
    assert between[-1] == second
    for call in between[-2:]:
        folder = tmp_path / str(call.number)
        start_state(scenario, tmp_path, folder)
        assert kill(scenario, whole, call, "before", folder) == "", call
    assert continue_and_compare(scenario, whole, folder) == ""


@pytest.mark.nightly
@pytest.mark.skipif(shim.library() is None, reason="needs a C compiler")
@pytest.mark.parametrize("case", ["kills: encode", "faults: train scl", "inputs: report"])
def test_some_cases(case: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.campaign", "--case", case, "--minutes", "0.5", "--output", tmp_path]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" cases, 0 failed\n") == 2


def test_how_a_fork_ended(tmp_path: Path) -> None:
    assert in_fork(lambda: print(os.getcwd()), tmp_path) == Done(0, f"{tmp_path.resolve()}\n")
    assert in_fork(partial(sys.exit, 3), tmp_path).status == 3
    assert in_fork(lambda: os.kill(os.getpid(), 9), tmp_path).status == -9
    assert "ZeroDivisionError" in in_fork(lambda: 1 // 0, tmp_path).output


WHOLE = "open('out.new', 'w').write('[1]'); os.rename('out.new', 'out'); "
WRITERS = {
    "right": (WHOLE, ""),
    "without rename": ("open('out', 'w').write('[2]'); open('out', 'w').write('[1]'); os.mkdir('z')", "half-written"),
    "random name": ("import tempfile; tempfile.mkstemp(dir='.'); " + WHOLE, "left over: tmp"),
    "other content": (
        "text = '[2]' if os.path.exists('out.new') else '[1]'; " + WHOLE.replace("'[1]'", "text"),
        "different: out",
    ),
    "removed first": (
        "os.mkdir('k1'); os.rename('k1', 'k'); os.mkdir('k2'); os.rmdir('k'); os.rename('k2', 'k'); " + WHOLE,
        "no version of k is left",
    ),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_wrong_writer_is_found(writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, sentence = WRITERS[writer]
    program = f"import os\nif not os.path.exists('out'): {program}"

    def run(words: str, cwd: Path, environment: dict[str, str] | None = None) -> Done:
        return in_fork(partial(exec, program, {}), cwd, environment)

    for module in (disturbed, scenarios):
        monkeypatch.setattr(module, "run", run)
        monkeypatch.setattr(module, "start_state", lambda scenario, shared, folder: folder.mkdir(exist_ok=True))
    scenario = Scenario("toy", "", "", kept="k")
    whole, problems = undisturbed(scenario, tmp_path / "shared"), []
    for call in whole.calls:
        (folder := tmp_path / str(call.number)).mkdir()
        problems.append(kill(scenario, whole, call, "before", folder) or continue_and_compare(scenario, whole, folder))
    problems = [problem for problem in problems if problem]
    assert problems == [] if not sentence else any(sentence in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("status", "output", "problem"),
    [
        (2, "nearfar: a.tsv: is empty.\n", ""),
        (0, "", ""),
        (1, "nearfar: a.tsv: is empty.\n", "status 1"),
        (-11, "", "status -11"),
        (-14, "", "waited until it was killed"),
        (2, "Traceback (most recent call last):\nValueError: no", "raised: ValueError: no"),
        (2, "", "without an error message"),
        (2, "nearfar: it is empty.", "does not name a.tsv"),
        (2, "nearfar: a.tsv: ValueError: no.", "contains 'ValueError'"),
        (2, "nearfar: a.tsv: <object at 0x7f0011223344>.", "at 0x7f"),
        (2, "nearfar: a.tsv: \x1b[31m.", "contains '\\x1b'"),
        (2, "nearfar: a.tsv: " + "x" * 9999, "characters"),
        (70, "nearfar: a.tsv: this is a bug in nearfar", "raised: nearfar: a.tsv"),
        (2, "nearfar: a.tsv: no. Tried:\none\ntwo\nthree\nfour", ""),
    ],
)
def test_verdicts(status: int, output: str, problem: str) -> None:
    wrong = wrong_ending(Done(status, output), ["a.tsv"])
    assert problem in wrong
    assert bool(wrong) == bool(problem)
