"""A Secret that the operator makes for a pool where there is none, and never reads, changes or deletes."""

import logging
import time
from collections.abc import Mapping

from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.resources import Pool
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.logs import About

RETRY_SECONDS = 60.0
"""Between two attempts to make it. That there is one already, whoever made it, is as good an answer as any."""


class PoolSecret:
    """A Secret of one pool. The operator may make Secrets and not look at them, so it tries, and is told.

    It tries when it first sees the pool, and now and then while not all of its engines say that they have it.

    Args:
        api: for making it.
        log: where it says so.
        what: it holds, in words.
    """

    def __init__(self, api: Api, log: logging.Logger | About, what: str) -> None:
        self._api = api
        self._log = log
        self._what = what
        self._tried: tuple[str, float] | None = None
        """Uid of the pool that it was last tried for, and when, by the monotonic clock."""
        self._is_wanted = False
        self.not_made = ""
        """Why it can't be made; empty if it can, or is there."""

    @property
    def retry_seconds(self) -> float | None:
        """Seconds after which to try again; None if nothing says that it is missing."""
        if not self._is_wanted or self._tried is None:
            return None
        return max(0.0, self._tried[1] + RETRY_SECONDS - time.monotonic())

    async def ensure(self, pool: Pool, name: str, data: Mapping[str, bytes], *, is_wanted: bool) -> None:
        """Make the Secret if it may be missing, unless that was tried just now.

        Args:
            pool: whose.
            name: of the Secret.
            data: what it is to hold, if there is none.
            is_wanted: whether anything says that it is missing.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: it could not be made, and may be when it is tried again.
        """
        self._is_wanted = is_wanted
        is_due = self._tried is None or self._tried[0] != pool.meta.uid or self.retry_seconds == 0.0
        if not self._is_wanted or not is_due:
            return
        self._tried = pool.meta.uid, time.monotonic()
        try:
            await self._api.create_pool_secret(pool, name, data)
        except RestError as error:
            if error.status != 409 and not error.is_lasting:
                raise
            self._note("" if error.status == 409 else explain(error), name)
        else:
            self._note("", name)
            self._log.info("the Secret %s has %s", name, self._what)

    def _note(self, not_made: str, name: str) -> None:
        if not_made and not_made != self.not_made:
            self._log.warning("the Secret %s can't be made: %s", name, not_made)
        self.not_made = not_made
