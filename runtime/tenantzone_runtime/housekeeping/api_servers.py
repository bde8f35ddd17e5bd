"""What each API server process enforces, and in what it differs from the engine core, for the report."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenantzone_contract.report import ApiServerReport, Lag
from tenantzone_runtime.api_server_state import ApiServerState, read_states

LAG_SECONDS: Final = 30.0
"""For which a process may enforce one other thing than the engine core, or write nothing, before the report says so.

Thousands of key files are read in parts, which takes seconds. While keys change all the time, the digests of two
processes that both follow may never be equal; but then both digests change.
"""
MISSING_SECONDS: Final = 60.0
"""For which fewer processes than the engine was started with may have reported, before the report says so."""
START_SECONDS: Final = 600.0
"""The same while none has reported yet: an engine core runs before its API server processes do, which vLLM starts
together. A large model's processor takes minutes to load from a slow disk."""


@dataclass(frozen=True, slots=True)
class Enforced:
    """What the engine core enforces."""

    config_hash: str | None
    keys: str
    """The digest of the API keys that the engine core has read from the same folder."""
    salt_key: str


class _Process:
    """One API server process, and since when it has differed in what."""

    def __init__(self, state: ApiServerState, now: float) -> None:
        self._heard_at = now
        self._state = state
        self._since: dict[tuple[Lag, str | None], float] = {}
        """Since when it has differed, by what it enforces."""

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
    """In what a process differs from the engine core, each with what the process enforces."""
    if state.config_hash != enforced.config_hash:
        yield "config", state.config_hash
    if state.keys != enforced.keys:
        yield "keys", state.keys
    if state.salt_key != enforced.salt_key:
        yield "salt_key", state.salt_key


class ApiServers:
    """The API server processes that have said what they enforce, until they end.

    One whose file is gone is remembered: it runs, and what it enforces is not known to have changed.

    Args:
        folder: shared with them; None: there are none.
        started: how many the engine was started with.
    """

    def __init__(self, folder: Path | None, started: int = 0) -> None:
        self._folder = folder
        self._started = started if folder is not None else 0
        self._has_heard = False
        """Whether any process has ever reported."""
        self._all_at: float | None = None
        """When all of them were last known, or looked for first."""
        self.missing = 0
        """Processes that the engine was started with and that have not reported for long."""
        self._processes: dict[tuple[int, int], _Process] = {}
        self.reports: Sequence[ApiServerReport] | None = None
        """What each of them enforces; None: none has said so yet."""

    def turn(self, enforced: Enforced, now: float | None = None) -> bool:
        """Look at what the processes enforce; returns whether the reports are others than before.

        Args:
            enforced: by the engine core.
            now: by the monotonic clock, in seconds; None: now.
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
        # The processes that were heard run: `read_states` has just looked.
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
