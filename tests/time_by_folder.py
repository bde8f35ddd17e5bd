"""Reports at the end of a run in which folders of tests its time went.

A pytest plugin. Seconds are those of the processes that ran the tests, so with several side by side they add up to more
than the elapsed time.
"""

from collections import Counter
from collections.abc import Iterable

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        report for found in terminalreporter.stats.values() for report in found if isinstance(report, pytest.TestReport)
    ]
    lines = table(reports)
    if len(lines) > 1:
        terminalreporter.section("seconds by folder")
        terminalreporter.write_line("\n".join(lines))


def table(reports: Iterable[pytest.TestReport]) -> list[str]:
    """A line for each folder, the slowest first: its tests, and their seconds including their fixtures."""
    seconds: Counter[str] = Counter()
    tests: dict[str, set[str]] = {}
    for report in reports:
        folder = "/".join(report.nodeid.split("::")[0].split("/")[:2])
        seconds[folder] += report.duration
        tests.setdefault(folder, set()).add(report.nodeid)
    return [f"{took:>8,.0f} {len(tests[folder]):>6,} {folder}" for folder, took in seconds.most_common()]
