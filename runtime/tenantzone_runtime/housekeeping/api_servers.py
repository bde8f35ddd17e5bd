"""Reports the config that each API server process enforces, and its differences from the engine core's config."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenantzone_contract.reports.report import ApiServerReport, Lag
from tenantzone_runtime.api_server_state import ApiServerState, read_states

LAG_SECONDS: Final = 30.0
"""Seconds for which a process may differ from the engine core in a value, or write nothing, before it is reported.

Thousands of key files are read in parts, which takes seconds. While keys change continuously, the digests of two
processes may never be equal although both follow. But then the digests change, which restarts the interval.
"""
MISSING_SECONDS: Final = 60.0
"""Seconds for which started processes may be missing before the report lists them as missing."""
START_SECONDS: Final = 600.0
"""Like ``MISSING_SECONDS``, until the first process has reported. The engine core runs before the API server processes,
which may take minutes to load a large model's processor from a slow disk."""


@dataclass(frozen=True, slots=True)
class Enforced:
    """The config and keys that the engine core enforces."""

    config_hash: str | None
    keys: str
    """Digest of the API keys that the engine core has read from the same folder."""
    salt_key: str


class _Process:
    """One API server process, and how long it has differed from the engine core."""

    def __init__(self, state: ApiServerState, now: float) -> None:
        self._heard_at = now
        self._state = state
        self._since: dict[tuple[Lag, str | None], float] = {}
        """Monotonic time at which each difference began, by its kind and the process's value."""

    @property
    def is_running(self) -> bool:
        return self._state.is_running

    def hear(self, state: ApiServerState, now: float) -> None:
        if state.unix_time != self._state.unix_time:
            self._heard_at = now
        self._state = state

    def report(self, enforced: Enforced, now: float) -> ApiServerReport:
        state = self._state
        self._since = {found: self._since.get(found, now) for found in _differences(state, enforced)}
        lags: list[Lag] = [lag for (lag, _), since in self._since.items() if now - since >= LAG_SECONDS]
        if now - self._heard_at >= LAG_SECONDS:
            lags.append("silent")
        return ApiServerReport(
            process=state.process,
            config_generation=state.config_generation,
            config_hash=state.config_hash,
            keys=state.keys,
            salt_key=state.salt_key,
            lags=tuple(lags),
        )


def _differences(state: ApiServerState, enforced: Enforced) -> Iterator[tuple[Lag, str | None]]:
    """Generate the kinds of differences from the engine core, each with the process's value."""
    if state.config_hash != enforced.config_hash:
        yield "config", state.config_hash
    if state.keys != enforced.keys:
        yield "keys", state.keys
    if state.salt_key != enforced.salt_key:
        yield "salt_key", state.salt_key


class ApiServers:
    """The API server processes that have reported, until they end.

    A process whose file is gone is kept while it runs, because its config has probably not changed.

    Args:
        folder: the folder shared with the processes, or None without API server processes.
        started: the number of processes that the engine was started with.
    """

    def __init__(self, folder: Path | None, started: int = 0) -> None:
        self._folder = folder
        self._started = started if folder is not None else 0
        self._has_heard = False
        """Whether any process has ever reported."""
        self._all_at: float | None = None
        """Monotonic time at which no process was missing, or of the first turn. None before the first turn."""
        self.missing = 0
        """Number of started processes that have been missing for too long."""
        self._processes: dict[tuple[int, int], _Process] = {}
        self.reports: Sequence[ApiServerReport] | None = None
        """Reports of the processes, or None if no process has reported yet."""

    def turn(self, enforced: Enforced, now: float | None = None) -> bool:
        """Read the files of the processes. Returns whether the reports have changed.

        Args:
            enforced: the config and keys that the engine core enforces.
            now: the monotonic time in seconds, or None for the current time.
        """
        now = time.monotonic() if now is None else now
        before = self.reports, self.missing
        states = read_states(self._folder) if self._folder is not None else ()
        heard = {(state.process, state.started): state for state in states}
        for key, state in heard.items():
            if key in self._processes:
                self._processes[key].hear(state, now)
            else:
                self._processes[key] = _Process(state, now)
        # `read_states` has checked that the processes just read are running.
        self._processes = {
            key: process for key, process in self._processes.items() if key in heard or process.is_running
        }
        reports = tuple(self._processes[key].report(enforced, now) for key in sorted(self._processes))
        self.reports = reports or None
        lacking = max(0, self._started - len(reports))
        if not lacking or self._all_at is None:
            self._all_at = now
        if reports and not self._has_heard:
            self._has_heard, self._all_at = True, now
        patience = MISSING_SECONDS if self._has_heard else START_SECONDS
        self.missing = lacking if now - self._all_at >= patience else 0
        return (self.reports, self.missing) != before
