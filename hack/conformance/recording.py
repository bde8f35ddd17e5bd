"""A pytest plugin for vLLM's tests: writes down how each went, and stands in for the one fixture that they miss.

vLLM's own ``tests/conftest.py`` is left out. It imports what only tests of models need.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

_RUN_A_MODEL = "_e2e.py"
"""How the names of files end whose tests run one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the file for the outcomes."""
    parser.addoption("--outcomes", type=Path, required=True, help="the file to write")


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder of outcomes."""
    config.pluginmanager.register(_Recorder(config.getoption("--outcomes")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that run a model go last: what vLLM sets up for one in a process stays there."""
    running = [item for item in items if item.path.name.endswith(_RUN_A_MODEL)]
    items.sort(key=lambda item: item in running)
    if running:
        _take_blocks_of_16_tokens()


def _take_blocks_of_16_tokens() -> None:
    """Have vLLM's CPU backend take the blocks that these tests are written for: it has a kernel, and prefers others."""
    from vllm.v1.attention.backend import MultipleOf
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    CPUAttentionBackend.get_supported_kernel_block_sizes = staticmethod(lambda kv_cache_spec=None: [MultipleOf(16)])


@pytest.fixture
def caplog_vllm(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.LogCaptureFixture]:
    """Captures vLLM's logs; its logger does not propagate to the root logger."""
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    with caplog.at_level(logging.INFO):
        yield caplog


class _Recorder:
    """Outcomes by test id: a test that fails in its setup, itself or in its teardown has failed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, dict[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before = self._outcomes.get(report.nodeid)
        if before is None or (before["outcome"] == "passed" and not report.passed):
            details = "" if report.passed else report.longreprtext
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = crash.message if crash else details
            self._outcomes[report.nodeid] = {"outcome": report.outcome, "reason": reason, "details": details}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._path.write_text(json.dumps(self._outcomes))
        if session.exitstatus == pytest.ExitCode.TESTS_FAILED:
            # That tests fail is a result here; that they could not be run is not.
            session.exitstatus = pytest.ExitCode.OK
