"""Refreshes the frontend's active config, even without requests, and reports its state to the engine core."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from tenantzone_runtime.api_server_state import ApiServerState, remove_state, state_of_this_process
from tenantzone_runtime.frontend.active_config import ActiveConfig

_log = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 0.2
RENEWAL_SECONDS: Final = 5.0
"""Time in seconds after which an unchanged state is written again, as a heartbeat for the engine core."""


@asynccontextmanager
async def following(active: ActiveConfig, folder: Path) -> AsyncIterator[None]:
    """Refresh and report the active config while the ``async with`` block runs.

    Args:
        active: the active config of this process's frontend.
        folder: the folder shared with the engine core. If the folder is removed, the engine core creates it again.
    """
    reporter = _Reporter(active, folder)
    reporter.report()
    task = asyncio.create_task(_follow(active, reporter), name="following the active config")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        with suppress(OSError):
            remove_state(folder)


async def _follow(active: ActiveConfig, reporter: "_Reporter") -> None:
    logged = ""
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        try:
            await active.look_if_due()
            await asyncio.to_thread(reporter.report)
            logged = ""
        except Exception as error:
            # Only log the error. If its cause persists, the next request fails with the same error, and is refused.
            if repr(error) != logged:
                _log.exception("the frontend could not refresh the active config, and will retry")
            logged = repr(error)


class _Reporter:
    """Writes this process's state to a file when the state has changed, or the file is old or missing."""

    def __init__(self, active: ActiveConfig, folder: Path) -> None:
        self._active = active
        self._folder = folder
        self._written: ApiServerState | None = None

    def report(self) -> None:
        """Write the state, unless the file is up to date. If the write fails, the next call retries it."""
        config = self._active.config
        state = state_of_this_process(
            config.generation if config is not None else None,
            config.hash if config is not None else None,
            self._active.keys_digest,
            self._active.salt_key_id,
        )
        if self._is_written(state):
            return
        # Ignore errors. The engine core creates a missing folder again, and reports a process that writes no state.
        with suppress(OSError):
            state.write(self._folder)
            self._written = state

    def _is_written(self, state: ApiServerState) -> bool:
        written = self._written
        if written is None or replace(written, unix_time=state.unix_time) != state:
            return False
        is_new = 0 <= state.unix_time - written.unix_time < RENEWAL_SECONDS
        return is_new and written.is_in(self._folder)
