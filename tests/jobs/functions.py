"""Functions of jobs for the tests."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from nearfar.jobs import Job

HERE = "tests.jobs.functions"


def combine(settings: dict[str, Any], inputs: dict[str, Path], folder: Path) -> None:
    """Write ``steps`` files one after the other, skipping those that an earlier attempt wrote, then their sum-up."""
    for step in range(settings.get("steps", 2)):
        file = folder / f"step-{step}.txt"
        if not file.exists():
            time.sleep(settings.get("pause", 0))
            temporary = folder / "step.new"
            temporary.write_text(f"{settings['name']} {step}", encoding="utf-8")
            temporary.replace(file)
    texts = [f"{name}={(inputs[name] / 'result.txt').read_text(encoding='utf-8')}" for name in sorted(inputs)]
    (folder / "deeper").mkdir(exist_ok=True)
    (folder / "deeper" / "parts.txt").write_text("\n".join(texts), encoding="utf-8")
    (folder / "result.txt").write_text(f"{settings['name']}({','.join(texts)})", encoding="utf-8")
    _append(settings.get("ran"), settings["name"])
    _append(settings.get("pids"), str(os.getpid()))


def nothing(settings: dict[str, Any], inputs: dict[str, Path], folder: Path) -> None:
    """Write no file."""


def publishes(settings: dict[str, Any], inputs: dict[str, Path], folder: Path) -> None:
    """Write the folder of the job and the working folder to a file elsewhere."""
    text = f"{folder}\n{os.getcwd()}"
    Path(settings["to"], str(settings["number"])).write_text(text, encoding="utf-8")


_CALLS: list[int] = []


def pid_of(settings: dict[str, Any], inputs: dict[str, Path], folder: Path) -> None:
    """Write the process, and how often it was called before."""
    Path(settings["to"], f"pid-{settings['number']}").write_text(f"{os.getpid()} {len(_CALLS)}", encoding="utf-8")
    _CALLS.append(settings["number"])


def raises(settings: dict[str, Any], inputs: dict[str, Path], folder: Path) -> None:
    """Raise an exception, unless the file ``mended`` exists."""
    (folder / "begun.txt").write_text("begun", encoding="utf-8")
    if not Path(settings.get("mended", "/none/")).exists():
        raise ValueError(f"{settings['name']} is\nno good")
    (folder / "result.txt").write_text("mended", encoding="utf-8")


def exits(settings: dict[str, Any], inputs: dict[str, Path], folder: Path) -> None:
    """Call sys.exit."""
    sys.exit("enough")


def dies(settings: dict[str, Any], inputs: dict[str, Path], folder: Path) -> None:
    """End the process by a signal in the first ``times`` attempts."""
    marks = len(list(folder.glob("attempt-*")))
    if marks < settings["times"]:
        (folder / f"attempt-{marks}").write_text("", encoding="utf-8")
        if "child" in settings:
            child = subprocess.Popen(["sleep", "1000"])
            Path(settings["child"]).write_text(str(child.pid), encoding="utf-8")
        os.kill(os.getpid(), settings.get("signal", signal.SIGKILL))
    for file in folder.glob("attempt-*"):
        file.unlink()
    combine(settings, inputs, folder)


def prints(settings: dict[str, Any], inputs: dict[str, Path], folder: Path) -> None:
    """Print in every way, read stdin, and report the surroundings."""
    print("to stdout")
    print("to stderr", file=sys.stderr)
    os.write(1, b"to descriptor 1\n")
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    assert sys.stdin.read() == ""
    (folder / "threads.txt").write_text(os.environ.get("OMP_NUM_THREADS", ""), encoding="utf-8")
    (folder / "folder.txt").write_text(os.getcwd(), encoding="utf-8")


def sleeps(settings: dict[str, Any], inputs: dict[str, Path], folder: Path) -> None:
    """Say who runs it, then sleep until interrupted, and say so; with the file ``mended``, return at once."""
    if Path(settings["mended"]).exists():
        return
    child = subprocess.Popen(["sleep", "1000"])
    temporary = Path(settings["pid"] + ".new")
    temporary.write_text(f"{os.getpid()} {child.pid}", encoding="utf-8")
    temporary.replace(settings["pid"])
    try:
        time.sleep(1000)
    except KeyboardInterrupt:
        (folder / "cleaned.txt").write_text("cleaned", encoding="utf-8")
        raise
    finally:
        child.kill()
        child.wait()


def job(name: str, inputs: dict[str, Job] | None = None, **settings: Any) -> Job:
    """A job that writes files with its name and the results of its inputs."""
    return Job(f"{HERE}:combine", {"name": name, **settings}, inputs or {})


def diamonds(count: int, **settings: Any) -> list[Job]:
    """The last jobs of ``count`` graphs of four jobs: a first one, two that need it, one that needs both."""
    last = []
    for number in range(count):
        first = job(f"first {number}", **settings)
        left, right = (job(f"{side} {number}", {"first": first}, **settings) for side in ("left", "right"))
        last.append(job(f"last {number}", {"left": left, "right": right}, **settings))
    return last


def contents(root: Path) -> dict[str, bytes]:
    """The files of all finished jobs, without those that describe the attempt."""
    return {
        str(file.relative_to(root)): file.read_bytes()
        for file in sorted(root.rglob("*"))
        if file.is_file() and file.name not in ("attempt.json", "log.txt")
    }


def _append(file: str | None, line: str) -> None:
    if file:
        with open(file, "a", encoding="utf-8") as stream:
            stream.write(line + "\n")
