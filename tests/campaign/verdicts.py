"""What every command and reader owes to any input: how a fork may end, and how an error must read."""

import re
from collections.abc import Collection, Sequence

from tests.campaign.server import Done

MAX_MESSAGE, MAX_LINES = 1_500, 30
"""Characters and lines of an error: a sentence, which may end with a colon and a list, such as the rows of a batch."""
_ERROR_FORM = "nearfar: "
_CLASS_NAME = re.compile(r"\b[A-Za-z_]+(Error|Exception)\b|\bError -\d")
_ADDRESS = re.compile(r"\bat 0x[0-9a-f]{6,}")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def how_it_ended(done: Done) -> str:
    """Waiting for ever, signals and tracebacks; "" if all is well."""
    if done.timed_out:
        return f"waited until it was killed; last line: {done.last_line[:200]}"
    if done.status < 0:
        return f"ended by signal {-done.status}; last line: {done.last_line[:200]}"
    if "Traceback (most recent call last)" in done.output or done.status == 98:
        return f"raised: {done.last_line[:300]}"
    return ""


def of_reader(done: Done, names: Collection[str]) -> str:
    """What is wrong with a call of :func:`tests.campaign.inputs.read`, or ""."""
    if problem := how_it_ended(done):
        return problem
    if done.result["difference"]:
        return str(done.result["difference"])[:600]
    error = done.result["error"]
    return "" if error is None else _of_message(error, names)


def of_command(done: Done, names: Collection[str], *, statuses: Sequence[int] = (0, 2)) -> str:
    """What is wrong with a run of a command, or "". An error must contain one of ``names``."""
    if problem := how_it_ended(done):
        return problem
    if done.status not in statuses:
        return f"exit status {done.status}: {done.last_line[:400]}"
    if done.status == 0:
        return ""
    message = error_of(done)
    if message is None:
        return f"exit status {done.status} without an error message: {done.last_line[:200]}"
    return _of_message(message, names)


def error_of(done: Done) -> str | None:
    """The error message of a command: from the line that begins with its form to the end."""
    lines = done.output.rstrip("\n").split("\n")
    starts = [number for number, line in enumerate(lines) if line.startswith(_ERROR_FORM)]
    return "\n".join(lines[starts[-1] :]).removeprefix(_ERROR_FORM) if starts else None


def _of_message(message: str, names: Collection[str]) -> str:
    shown = message[:300]
    if "this is a bug in nearfar" in message:
        return f"is reported as a bug: {message[:500]}"
    lines = message.split("\n")
    sentence = next((number + 1 for number, line in enumerate(lines) if line.endswith(":")), len(lines))
    if len(message) > MAX_MESSAGE or sentence > 3 or len(lines) > MAX_LINES:
        return f"the error has {len(message):,} characters and {message.count(chr(10)) + 1} lines: {shown}"
    if not any(name in message for name in names):
        return f"the error does not name {' or '.join(names)}: {shown}"
    if found := _CLASS_NAME.search(message):
        return f"the error contains the name of a class, {found[0]}: {shown}"
    if found := _ADDRESS.search(message) or _CONTROLS.search(message):
        return f"the error contains {found[0]!r}: {shown}"
    return ""
