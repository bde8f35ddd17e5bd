"""Reports the config that each API server process enforces, and how it differs from the engine core's config."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenantzone_contract.reports.report import ApiServerReport
from tenantzone_contract.reports.words import Lag
from tenantzone_runtime.api_server_state import ApiServerState, read_states

LAG_SECONDS: Final = 30.0
"""Seconds for which a process may have the same outdated value, or write nothing, before the lag is reported.

It takes seconds to read thousands of key files. If keys change continuously, the key digests of a process and of the
engine core may never be equal, although both are up to date. Then each change of the digest restarts the interval.
"""
MISSING_SECONDS: Final = 60.0
"""Seconds for which a started process may be missing before the report counts it as missing."""
START_SECONDS: Final = 600.0
"""The same as ``MISSING_SECONDS``, but before the first process has reported. API server processes start later than the
engine core, and may take minutes to load a large model's processor from a slow disk."""


@dataclass(frozen=True, slots=True)
class Enforced:
    """The config hash and the keys that the engine core enforces."""

    config_hash: str | None
    keys: str
    """Digest of the API keys that the engine core has read from the same folder as the API server."""
    salt_key: str
    """Id of the engine core's salt key."""


class _Process:
    """One API server process, and the times since which its values have differed from the engine core's."""

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
    """Returns each kind of difference from the engine core, with the value that the process has."""
    if state.config_hash != enforced.config_hash:
        yield "config", state.config_hash
    if state.keys != enforced.keys:
        yield "keys", state.keys
    if state.salt_key != enforced.salt_key:
        yield "salt_key", state.salt_key


class ApiServers:
    """The running API server processes that have reported their state.

    If the file of a running process is missing, its last state is kept, because its config has probably not changed.

    Args:
        folder: the folder that is shared with the processes; None without API server processes.
        started: the number of API server processes with which the engine was started.
    """

    def __init__(self, folder: Path | None, started: int = 0) -> None:
        self._folder = folder
        self._started = started if folder is not None else 0
        self._has_heard = False
        """Whether any process has ever reported."""
        self._all_at: float | None = None
        """Monotonic time from which missing processes are awaited: the latest of the first turn, the first report, and
        the last turn in which no process was missing. None before the first turn."""
        self.missing = 0
        """Number of started processes that have been missing for too long."""
        self._processes: dict[tuple[int, int], _Process] = {}
        self.reports: Sequence[ApiServerReport] | None = None
        """Reports of the processes; None if no process has a report."""

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
        # Processes in `heard` need no check, because `read_states` returns only states of running processes.
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
