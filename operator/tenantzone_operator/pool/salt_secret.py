"""The Secret with a pool's salt key: made where there is none, and never read, changed or deleted."""

import logging
import time
from collections.abc import Sequence

from tenantzone_contract.salt import new_salt_key, salt_secret_name
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.resources import Pool
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.logs import About

RETRY_SECONDS = 60.0
"""Between two attempts to make it. That there is one already, whoever made it, is as good an answer as any."""


class SaltSecret:
    """The Secret of one pool. The operator may make Secrets and not look at them, so it tries, and is told.

    It tries when it first sees the pool, and now and then while not all of its engines say that they have its key.

    Args:
        api: for making it.
        log: where it says so.
    """

    def __init__(self, api: Api, log: logging.Logger | About) -> None:
        self._api = api
        self._log = log
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

    async def ensure(self, pool: Pool, observations: Sequence[Observation]) -> None:
        """Make the Secret if it may be missing, unless that was tried just now.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: it could not be made, and may be when it is tried again.
        """
        self._is_wanted = may_be_missing(observations)
        is_due = self._tried is None or self._tried[0] != pool.meta.uid or self.retry_seconds == 0.0
        if not self._is_wanted or not is_due:
            return
        self._tried = pool.meta.uid, time.monotonic()
        try:
            await self._api.create_salt_secret(pool, new_salt_key())
        except RestError as error:
            if error.status != 409 and not error.is_lasting:
                raise
            self._note("" if error.status == 409 else explain(error), pool)
        else:
            self._note("", pool)
            self._log.info("the Secret %s has a new salt key", salt_secret_name(pool.meta.name))

    def _note(self, not_made: str, pool: Pool) -> None:
        if not_made and not_made != self.not_made:
            self._log.warning("the Secret %s can't be made: %s", salt_secret_name(pool.meta.name), not_made)
        self.not_made = not_made


def may_be_missing(observations: Sequence[Observation]) -> bool:
    """Whether anything says that the Secret is not there: no engine, or one without the pool's key."""
    reports = [seen.report for seen in observations]
    return not reports or any(report is None or not report.salt_key_id or report.salt_key_error for report in reports)
