"""The end of a test run says where its processor time went: seconds by file, the ten largest, and the sum."""

import os
from collections import defaultdict
from collections.abc import Generator
from typing import Any

import pytest

_PROPERTY = "processor_seconds"  # in a report's user_properties, which pytest-xdist brings back from its workers


def processor_seconds() -> float:
    """Seconds of processor time of this process, all its threads and all its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Notes when a test begins, before its fixtures are made."""
    item.stash[_LAST] = processor_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to the report of a phase (set-up, call, tear-down) what the phase took."""
    report = yield
    now = processor_seconds()
    report.user_properties = [(_PROPERTY, now - item.stash[_LAST])]
    item.stash[_LAST] = now
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints the ten files that took most, and the sum over all files."""
    by_file: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, seconds in getattr(report, "user_properties", ()):
                if name == _PROPERTY:
                    by_file[report.nodeid.split("::")[0]] += seconds
    if not by_file:
        return
    terminalreporter.write_sep("=", "processor seconds by file")
    for file, seconds in sorted(by_file.items(), key=lambda pair: -pair[1])[:10]:
        terminalreporter.write_line(f"{seconds:9.1f}  {file}")
    terminalreporter.write_line(f"{sum(by_file.values()):9.1f}  all {len(by_file)} files")


_LAST = pytest.StashKey[float]()
