"""The job of a script step: runs a Python script of the study's author, and checks what it has written."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearfar.commands.study.sources import Source, digest_of_file, find_source
from nearfar.commands.study.work import NUMBERS, RUN, start_of, write_numbers
from nearfar.config.study.script import DATA_ARGUMENTS, ScriptConfig
from nearfar.data.paths import is_file
from nearfar.disk import read_json
from nearfar.types import NearfarError

FUNCTION = f"{__name__}:script"
LAST_LINES = 5
"""Number of lines of the script's output in the message of a failure."""
STOP_SECONDS = 10
"""How long a script may take to end after Ctrl-C."""


def find_script(config: ScriptConfig, folder: Path) -> Source:
    """The script of a step; ``folder`` is that of the study file.

    Raises:
        NearfarError: there is no such file, or it cannot be read.
    """
    file = folder / config.file
    if not is_file(file):
        raise NearfarError(f"script: {file}: no such file; its path is relative to the study file.")
    found = digest_of_file(file)[:16]
    return Source(spec=str(file.absolute()), written=f"script-{found}", fingerprint=found, bytes=file.stat().st_size)


def data_of_script(config: ScriptConfig) -> dict[str, list[Source]]:
    """Argument -> the data sets that it names."""
    found = {}
    for name in DATA_ARGUMENTS:
        value = config.arguments.get(name)
        if isinstance(value, str | tuple):
            found[name] = [find_source(str(one)) for one in (value if isinstance(value, tuple) else (value,))]
    return found


def script(settings: dict[str, Any], inputs: dict[str, Path], folder: Path) -> None:
    """Run the script of ``settings`` into ``run/``; its output is printed, which in a worker goes to log.txt.

    Raises:
        NearfarError: the script has changed since the study was started, fails, or does not write its model or one of
            its numbers; the message has the last lines of its output.
    """
    files: Mapping[str, str] = settings["files"]
    file, run = Path(files[settings["script"]]), folder / RUN
    if not is_file(file) or digest_of_file(file)[:16] != settings["script"].removeprefix("script-"):
        raise NearfarError(f"{file}: was changed while the study ran; run the study again.")
    arguments = {name: _with_files(value, files) for name, value in settings["values"].items()}
    config = ScriptConfig(file=str(file), arguments=arguments)
    model = start_of(settings, inputs)
    if "model" in inputs:
        model = str(inputs["model"] / RUN / "model")
    run.mkdir(exist_ok=True)
    shutil.rmtree(run / "model", ignore_errors=True)  # of an attempt that was stopped
    (run / NUMBERS).unlink(missing_ok=True)
    words = ["--model", model, "--output", str(run), "--seed", str(settings["seed"]), *config.command()]
    started = time.perf_counter()
    _call([sys.executable, str(file), *words], name=file.name)
    seconds = time.perf_counter() - started
    if not any((run / "model" / name).is_file() for name in ("modules.json", "config.json")):
        raise NearfarError(f"{file.name}: wrote no model. It must write a sentence-transformers model to OUTPUT/model.")
    write_numbers(folder, {"seconds": seconds, **_numbers(run / NUMBERS, settings["numbers"], name=file.name)})


def _with_files(value: Any, files: Mapping[str, str]) -> Any:
    """A value with the paths of this machine."""
    if isinstance(value, list):
        return tuple(_with_files(one, files) for one in value)
    return files.get(value, value) if isinstance(value, str) else value


def _call(command: list[str], *, name: str) -> None:
    """Run a command, print its output, and raise an error with its last lines if it fails."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
    last: deque[str] = deque(maxlen=LAST_LINES)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            last += [line.strip()] if line.strip() else []
        status = process.wait()
    except BaseException:  # Ctrl-C too: the script must not outlive its job
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    finally:
        process.stdout.close()
    if status:
        raise NearfarError(f"{name}: ended with exit status {status}: {' | '.join(last) or 'without output'}")


def _numbers(file: Path, names: list[str], *, name: str) -> dict[str, float]:
    """The numbers in the script's numbers.json; without the file, none."""
    found = read_json(file, otherwise="The script must write a JSON object of numbers.") if file.exists() else {}
    if not isinstance(found, dict):
        raise NearfarError(f"{name}: numbers.json is no JSON object, but {json.dumps(found)[:40]}.")
    for key, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise NearfarError(f"{name}: numbers.json: {key} = {json.dumps(value)[:40]}: must be a number.")
    for key in names:
        if key not in found:
            raise NearfarError(f"{name}: numbers.json lacks {key!r}, which the study names among its numbers.")
    return found
