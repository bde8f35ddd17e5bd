"""The config that each API server process enforces, and its differences from the engine core's, for the report."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenantzone_contract.report import ApiServerReport, Lag
from tenantzone_runtime.api_server_state import ApiServerState, read_states

LAG_SECONDS: Final = 30.0
"""Seconds for which a process may differ from the engine core in a value, or write nothing, before it is reported.

Thousands of key files are read in parts, which takes seconds. While keys change all the time, the digests of two
processes that both follow may never be equal; but then both digests change.
"""
MISSING_SECONDS: Final = 60.0
"""Seconds for which fewer processes than were started may have reported, before the report says so."""
START_SECONDS: Final = 600.0
"""The same until the first process has reported: an engine core runs before its API server processes, which vLLM
starts together. A large model's processor takes minutes to load from a slow disk."""


@dataclass(frozen=True, slots=True)
class Enforced:
    """What the engine core enforces."""

    config_hash: str | None
    keys: str
    """The digest of the API keys that the engine core has read from the same folder."""
    salt_key: str


class _Process:
    """One API server process, and how long it has differed from the engine core."""

    def __init__(self, state: ApiServerState, now: float) -> None:
        self._heard_at = now
        self._state = state
        self._since: dict[tuple[Lag, str | None], float] = {}
        """When each difference began, by its kind and the process's own value."""

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
    """Yields the kinds of differences from the engine core, each with the process's own value."""
    if state.config_hash != enforced.config_hash:
        yield "config", state.config_hash
    if state.keys != enforced.keys:
        yield "keys", state.keys
    if state.salt_key != enforced.salt_key:
        yield "salt_key", state.salt_key


class ApiServers:
    """The API server processes that have reported, until they end.

    A process whose file is gone is kept while it runs: its config is not known to have changed.

    Args:
        folder: the folder shared with the processes; None if there are none.
        started: the number of processes that the engine was started with.
    """

    def __init__(self, folder: Path | None, started: int = 0) -> None:
        self._folder = folder
        self._started = started if folder is not None else 0
        self._has_heard = False
        """Whether any process has ever reported."""
        self._all_at: float | None = None
        """When all processes were last known, or were first looked for."""
        self.missing = 0
        """The number of processes that the engine was started with and that have not reported for long."""
        self._processes: dict[tuple[int, int], _Process] = {}
        self.reports: Sequence[ApiServerReport] | None = None
        """What each process enforces; None if none has reported yet."""

    def turn(self, enforced: Enforced, now: float | None = None) -> bool:
        """Read what the processes enforce. Returns whether the reports have changed.

        Args:
            enforced: what the engine core enforces.
            now: monotonic time in seconds; None for the current time.
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
        # The processes that were just read are running: `read_states` has checked that.
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
