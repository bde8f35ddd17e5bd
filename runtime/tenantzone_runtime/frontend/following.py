"""Follows the active config even while no request comes, and reports it to the engine core."""

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
"""The time after which an unchanged state is written again, so that the engine core sees that it is followed."""


@asynccontextmanager
async def following(active: ActiveConfig, folder: Path) -> AsyncIterator[None]:
    """Follow the active config, from an API server's start to its end.

    Args:
        active: the active config of this process's frontend.
        folder: shared with the engine core, which recreates it if it is removed.
    """
    reporter = _Reporter(active, folder)
    reporter.report()
    task = asyncio.create_task(_follow(active, reporter), name="following what is in force")
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
            # The next request meets the same error, and is refused.
            if repr(error) != logged:
                _log.exception("the frontend could not look at what is in force, and tries again")
            logged = repr(error)


class _Reporter:
    """Writes this process's state when it has changed, when it is old, and when its file is missing."""

    def __init__(self, active: ActiveConfig, folder: Path) -> None:
        self._active = active
        self._folder = folder
        self._written: ApiServerState | None = None

    def report(self) -> None:
        """Write the state, unless its file is up to date. A failed write is retried with the next call."""
        config = self._active.config
        state = state_of_this_process(
            config.generation if config is not None else None,
            config.hash if config is not None else None,
            self._active.keys_digest,
            self._active.salt_key_id,
        )
        if self._is_written(state):
            return
        # The engine core recreates the folder, and reports that this process is silent.
        with suppress(OSError):
            state.write(self._folder)
            self._written = state

    def _is_written(self, state: ApiServerState) -> bool:
        written = self._written
        if written is None or replace(written, unix_time=state.unix_time) != state:
            return False
        is_new = 0 <= state.unix_time - written.unix_time < RENEWAL_SECONDS
        return is_new and written.is_in(self._folder)
