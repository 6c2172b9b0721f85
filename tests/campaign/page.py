"""The counts of a campaign: a table on the terminal, a result file for each state, and docs/reliability.md.

python -m tests.campaign.page           writes the page from tests/campaign/results only
python -m tests.campaign.page --short   measures the time of the few cases that `make test` runs first
"""

import json
import re
import shlex
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from nearfar.disk import write_text
from nearfar.evaluation.render import markdown_text
from nearfar.evaluation.results import provenance
from tests.campaign.case import PARTS

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "reliability.md"
MAX_CHARS = 200
"""Characters of a failure on the page."""
STATES = ("before", "after")
"""Before and after the faults that the campaign found were mended."""


def counts(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, tuple[int, int]]]:
    """Part -> group -> number of cases, and of those that failed."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for outcome in outcomes:
        groups = found.setdefault(outcome["part"], defaultdict(lambda: (0, 0)))
        cases, failed = groups[outcome["group"]]
        groups[outcome["group"]] = (cases + 1, failed + bool(outcome["wrong"]))
    return {part: dict(sorted(found[part].items())) for part in PARTS if part in found}


def table(outcomes: Sequence[Mapping[str, Any]], skipped: Mapping[str, str]) -> Table:
    """The counts, for the terminal."""
    shown = Table("part", "group", "cases", "failed")
    for part, groups in counts(outcomes).items():
        for group, (cases, failed) in groups.items():
            shown.add_row(part, group, f"{cases:,}", str(failed) if failed else "")
    for part, reason in skipped.items():
        shown.add_row(part, "", "skipped", reason)
    return shown


def write_result(state: str, outcomes: Sequence[Mapping[str, Any]], skipped: Mapping[str, str], seed: int) -> None:
    """Write the result file of a state: provenance, counts, cases of each commit, each failure, and the time of all.

    Raises:
        SystemExit: the checkout has uncommitted changes, or had them when a case ran: no commit gives these results.
    """
    made = _made([str(one["commit"]) for one in outcomes])
    failures = [
        {
            "part": one["part"],
            "group": one["group"],
            "case": one["name"],
            "wrong": _without_folders(one["wrong"]),
        }
        for one in outcomes
        if one["wrong"]
    ]
    content = {
        "provenance": made,
        "seed": seed,
        "commits": dict(Counter(str(one["commit"]) for one in outcomes)),
        "case_seconds": round(sum(one["seconds"] for one in outcomes)),
        "counts": {
            part: {group: list(pair) for group, pair in groups.items()} for part, groups in counts(outcomes).items()
        },
        "skipped": dict(skipped),
        "failures": failures,
    }
    RESULTS.mkdir(exist_ok=True)
    write_text(RESULTS / f"{state}.json", json.dumps(content, indent=1) + "\n")


def _without_folders(text: str) -> str:
    """A failure without the folders of this machine: that of the case, and that of temporary files."""
    return re.sub(r"/\S*/(?:case-[^/\s]+/|(?=nearfar-bug-))", "", text)


def _made(commits: Sequence[str] = (), *, module: str = "tests.campaign") -> dict[str, Any]:
    """The provenance, without absolute paths in the command; SystemExit if it or a commit is of changed files."""
    made = provenance().to_dict()
    if any(str(commit or "-dirty").endswith("-dirty") for commit in (made["commit"], *commits)):
        raise SystemExit("The checkout has uncommitted changes: no result file is written.")
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    return {**made, "command": f"python -m {module} {shlex.join(words)}"}


def write_short() -> None:
    """Run the cases of `make test` in one process, and write their number and time to short.json."""
    from tests.campaign.test_short import COUNTS

    made, started = _made(module="tests.campaign.page"), time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "tests/campaign/test_short.py", "-k", "first_cases"],
        cwd=ROOT,
        check=True,
    )
    content = {"provenance": made, "seconds": round(time.monotonic() - started), "cases": sum(COUNTS.values())}
    RESULTS.mkdir(exist_ok=True)
    write_text(RESULTS / "short.json", json.dumps(content, indent=1) + "\n")


def write_page() -> None:
    """Write docs/reliability.md from the result files."""
    found = {
        state: json.loads((RESULTS / f"{state}.json").read_text(encoding="utf-8"))
        for state in STATES
        if (RESULTS / f"{state}.json").exists()
    }
    short = RESULTS / "short.json"
    time_of_short = ""
    if short.exists():
        measured = json.loads(short.read_text(encoding="utf-8"))
        time_of_short = f": {measured['cases']} cases, {measured['seconds']} seconds of one core"
    lines = [
        "# Reliability",
        "",
        "Generated by `python -m tests.campaign.page` from `tests/campaign/results`; do not edit.",
        "",
        "`make campaign` kills the commands at random moments, fails single system calls, gives them malformed files, "
        "compares results that must be equal, and runs them for long. `make test` runs a few cases of each part"
        f"{time_of_short}.",
        "",
    ]
    for part, meaning in PARTS.items():
        lines.append(f"- **{part}**: {meaning}.")
    for state, content in found.items():
        lines += ["", *_section(state, content)]
    write_text(PAGE, "\n".join(lines) + "\n")


def _section(state: str, content: Mapping[str, Any]) -> list[str]:
    made = content["provenance"]
    title = {"before": "Before the faults were mended", "after": "After the faults were mended"}[state]
    total = sum(cases for groups in content["counts"].values() for cases, _ in groups.values())
    hardware = made["hardware"]
    lines = [
        f"## {title}",
        "",
        f"{total:,} cases, {len(content['failures'])} failed; {content['case_seconds'] / 60:.0f} minutes of cases, "
        f"seed {content['seed']}. {_commits(content['commits'])}, {made['date'][:10]}, {hardware['processor']} "
        f"({hardware['instruction_sets']}), {hardware['cores']} cores."
        + (" A sample of today's cases, with the nearfar of that commit." if state == "before" else ""),
        "",
        "| part | commands | cases | failed |",
        "| --- | --- | ---: | ---: |",
    ]
    for part, groups in content["counts"].items():
        lines += [
            f"| {part} | {markdown_text(group)} | {cases:,} | {failed} |" for group, (cases, failed) in groups.items()
        ]
    lines += [f"| {part} | skipped: {markdown_text(reason)} | 0 | 0 |" for part, reason in content["skipped"].items()]
    if content["failures"]:
        lines += ["", "| case | what failed |", "| --- | --- |"]
        lines += [
            f"| {markdown_text(one['part'] + ': ' + one['case'])} | {markdown_text(_shorten(one['wrong']))} |"
            for one in content["failures"]
        ]
    return lines


def _shorten(text: str) -> str:
    """The first words, in one line; the result file has all."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} ..."


def _commits(cases: Mapping[str, int]) -> str:
    """The commit, or each with the number of its cases: those that failed run again after the fault was mended."""
    if len(cases) == 1:
        return f"Commit `{next(iter(cases))}`"
    return "Commits " + ", ".join(f"`{commit}` ({count:,} cases)" for commit, count in cases.items())


if __name__ == "__main__":
    if sys.argv[1:] == ["--short"]:
        write_short()
    write_page()
