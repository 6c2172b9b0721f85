"""What every command owes to any input and any fault: how it may end, and how its error must read."""

import re
from collections.abc import Collection

from tests.campaign.forks import LIMITED, Done

MAX_MESSAGE, MAX_LINES = 1_500, 30
"""Characters and lines of an error: a sentence, which may end with a colon and a list, such as the rows of a batch."""
ODD_WORDS = re.compile(r"\b[A-Za-z_]+(Error|Exception)\b|\bError -\d|\bat 0x[0-9a-f]{6,}|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""The name of a class, an address, a control character."""


def wrong_ending(done: Done, names: Collection[str], *, statuses: Collection[int] = (0, 2)) -> str:
    """What is wrong with how a command ended, or "". An error must contain one of ``names``."""
    if done.status == LIMITED:
        return f"waited until it was killed: {done.last_line}"
    if "Traceback (most recent call last)" in done.output or "this is a bug in nearfar" in done.output:
        return f"raised: {done.last_line}"
    if done.status not in statuses:
        return f"status {done.status}: {done.last_line}"
    if done.status == 0:
        return ""
    message = error_of(done) or (done.last_line if done.status != 2 else None)
    if message is None:
        return f"status {done.status} without an error message: {done.last_line}"
    lines = message.split("\n")
    sentence = next((number + 1 for number, line in enumerate(lines) if line.endswith(":")), len(lines))
    if len(message) > MAX_MESSAGE or sentence > 3 or len(lines) > MAX_LINES:
        return f"the error has {len(message):,} characters and {len(lines)} lines: {message[:300]}"
    if not any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message) for name in names):
        return f"the error does not name {' or '.join(sorted(names)[:9])}: {message[:300]}"
    odd = ODD_WORDS.search(message)
    return f"the error contains {odd[0]!r}: {message[:300]}" if odd else ""


def error_of(done: Done) -> str | None:
    """The error message of a command: from the line that begins with its form to the end, or the parser's box."""
    lines = done.output.rstrip("\n").split("\n")
    starts = [number for number, line in enumerate(lines) if line.startswith("nearfar: ")]
    if starts:
        return "\n".join(lines[starts[-1] :]).removeprefix("nearfar: ")
    boxed = [line for line in lines if line.startswith(("│", "╭"))]
    return " ".join(" ".join(line.strip("│╭╮─ ") for line in boxed).split()) if boxed else None
