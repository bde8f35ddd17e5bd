"""The operator's key, of which the tokens are made that open engines' admin ports."""

import asyncio
import logging
import time
from contextlib import suppress

import aiohttp

from tenantzone_contract.admin_token import (
    ADMIN_KEY_SECRET,
    KEY_FILE,
    PREVIOUS_KEY_FILE,
    AdminTokenError,
    admin_token,
    new_admin_key,
    parse_admin_keys,
)
from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.rest import RestError

logger = logging.getLogger(__name__)

AGAIN_SECONDS = 10.0
"""Between two looks at the Secret, however many engines refuse what is made of it."""
LOOK_SECONDS = 60.0
"""Between two reads of the Secret while no engine refuses: if it was deleted, the operator makes it again."""
_CONFLICT = 409


class AdminKey:
    """The key from its Secret in the operator's own namespace, made where there is none and never overwritten.

    If the Secret is deleted, it is made again with the known keys: with the one before, too, while it is being changed.

    Args:
        api: for reading and making it.
        namespace: the operator's own.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._keys: tuple[bytes, ...] = ()
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()
        self.problem = ""
        """Why there is none; empty if there is one, or if nobody has asked for it yet."""

    def tokens(self, namespace: str, pool: str) -> tuple[str, ...]:
        """The tokens of a pool, the newest first; none without a key."""
        return tuple(admin_token(key, namespace, pool) for key in self._keys)

    async def look_up(self, namespace: str, pool: str) -> tuple[str, ...]:
        """The tokens of a pool, after a look at the Secret if there is no key yet; none while none can be had."""
        with suppress(RestError, aiohttp.ClientError, TimeoutError):
            await self.ensure()
        return self.tokens(namespace, pool)

    async def ensure(self, *, again: bool = False) -> None:
        """Have the key, if it can be had.

        Args:
            again: look whether it is another one by now.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: there is none, and the API server is in trouble; it may be
                over soon.
        """
        async with self._looking:
            pause = AGAIN_SECONDS if again or not self._keys else LOOK_SECONDS
            if time.monotonic() - self._looked_at < pause:
                return
            try:
                self._keys = parse_admin_keys(await self._read_or_make())
            except (RestError, aiohttp.ClientError, TimeoutError) as error:
                # Where there is no such namespace, there is none tomorrow.
                is_lasting = isinstance(error, RestError) and (error.is_lasting or error.status == 404)
                if is_lasting:
                    self._complain(explain(error))
                elif not self._keys:
                    raise
                # Else the known key is good enough until the next look: no pool waits for it.
            except AdminTokenError as error:
                self._complain(str(error))
            else:
                self.problem = ""
            self._looked_at = time.monotonic()

    async def keep_learning(self) -> None:
        """Read the Secret again and again, until cancelled, and never make it.

        So a replica that begins to lead knows the key, though the Secret was deleted meanwhile.
        """
        while True:
            await self._learn()
            await asyncio.sleep(LOOK_SECONDS if self._keys else AGAIN_SECONDS)

    async def _learn(self) -> None:
        async with self._looking:
            # Who leads says what is wrong.
            with suppress(RestError, aiohttp.ClientError, TimeoutError, AdminTokenError):
                found = await self._api.read_secret(self._namespace, ADMIN_KEY_SECRET)
                if found is not None:
                    self._keys = parse_admin_keys(found)

    async def _read_or_make(self) -> dict[str, str]:
        """The data of the Secret. A deleted Secret is made again with the keys that engines know."""
        found = await self._api.read_secret(self._namespace, ADMIN_KEY_SECRET)
        if found is None:
            keys, what = (self._keys, "the known key again") if self._keys else ((new_admin_key(),), "a new key")
            data = dict(zip((KEY_FILE, PREVIOUS_KEY_FILE), keys, strict=False))
            try:
                await self._api.create_secret(self._namespace, ADMIN_KEY_SECRET, data)
                logger.info("the Secret %s/%s has %s", self._namespace, ADMIN_KEY_SECRET, what)
            except RestError as error:
                # Another replica was faster.
                if error.status != _CONFLICT:
                    raise
            found = await self._api.read_secret(self._namespace, ADMIN_KEY_SECRET)
        return found or {}

    def _complain(self, why: str) -> None:
        problem = f"the Secret {self._namespace}/{ADMIN_KEY_SECRET}: {why}"
        if problem != self.problem:
            logger.warning("no key for engines' admin ports: %s", problem)
        self.problem = problem
