"""Creates a pool's Secret if the Secret is missing, but never reads, changes or deletes the Secret."""

import logging
import time
from collections.abc import Mapping

from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.resources import Pool
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.logs import About

RETRY_SECONDS = 60.0
"""Seconds between two attempts to create the Secret. Finding that the Secret exists counts as success."""


class PoolSecret:
    """A Secret of one pool. The operator may not read Secrets, so it tries to create a Secret that may be missing.

    The operator tries when it first sees the pool. It tries again periodically while an engine's report does not show
    that the engine uses the Secret's content.

    Args:
        api: creates the Secret.
        log: logs the creation and problems.
        what: a description of the Secret's content, for the log.
    """

    def __init__(self, api: Api, log: logging.Logger | About, what: str) -> None:
        self._api = api
        self._log = log
        self._what = what
        self._tried: tuple[str, float] | None = None
        """The pool's uid at the last attempt, and the monotonic time of that attempt; None before the first attempt."""
        self._is_wanted = False
        self.not_made = ""
        """Why the Secret can't be created; empty if nothing prevents it."""

    @property
    def retry_seconds(self) -> float | None:
        """Seconds until the next attempt to create the Secret; None if no attempt is planned."""
        if not self._is_wanted or self._tried is None:
            return None
        return max(0.0, self._tried[1] + RETRY_SECONDS - time.monotonic())

    async def ensure(self, pool: Pool, name: str, data: Mapping[str, bytes], *, is_wanted: bool) -> None:
        """Create the Secret if it may be missing, unless the last attempt for this pool was recent.

        Args:
            pool: the pool that the Secret belongs to.
            name: the Secret's name.
            data: the content for a new Secret.
            is_wanted: whether anything suggests that the Secret is missing.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: the Secret could not be created, but retrying may help.
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
            self._log.info("the Secret %s was created with %s", name, self._what)

    def _note(self, not_made: str, name: str) -> None:
        if not_made and not_made != self.not_made:
            self._log.warning("the Secret %s can't be created: %s", name, not_made)
        self.not_made = not_made
