"""Prints each failure at once, not only at the end, which an interrupted run does not reach.

A pytest plugin.
"""

import pytest


class FailuresAtOnce:
    """Writes each failure in full below the dots."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.ensure_newline()
            terminal.section(f"{report.nodeid}, {report.when}")
            terminal.write_line(report.longreprtext)


def pytest_configure(config: pytest.Config) -> None:
    # With several processes, the one that has the terminal prints what the others report.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(config))
