"""The operator's admin key. All tokens for engines' admin ports are derived from this key."""

import asyncio
import logging
import time
from contextlib import suppress

from tenantzone_contract.keys.admin_token import (
    ADMIN_KEY_SECRET,
    KEY_FILE,
    PREVIOUS_KEY_FILE,
    AdminTokenError,
    admin_token,
    new_admin_key,
    parse_admin_keys,
)
from tenantzone_operator.kube.api import Api, explain
from tenantzone_operator.kube.rest import REQUEST_ERRORS, RestError

logger = logging.getLogger(__name__)

AGAIN_SECONDS = 10.0
"""Minimum number of seconds between two reads of the Secret while an engine refuses the tokens or there is no key."""
LOOK_SECONDS = 60.0
"""Seconds between two reads of the Secret if no engine refuses the tokens. The leader also restores the Secret."""
_MAX_KEYS = 3
"""Maximum number of current and replaced keys together. A config has one signature per key."""
_CONFLICT = 409


class AdminKey:
    """The admin key from a Secret in the operator's namespace. The operator creates the Secret, but never changes it.

    If a user deletes the Secret, the operator creates it again with all keys that the Secret contained, including the
    previous key during a key rotation.

    If a user replaces the key in the Secret, this process also uses the replaced key until it ends, so that engines
    with tokens of the replaced key still answer and trust the config. The operator never writes the replaced key to a
    Secret.

    Args:
        api: reads and creates the Secret.
        namespace: the operator's namespace.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._keys: tuple[bytes, ...] = ()
        """Current keys in the Secret, newest first."""
        self._replaced: tuple[bytes, ...] = ()
        """Former keys that the Secret no longer contains; together with the current keys, at most ``_MAX_KEYS``."""
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()
        self.problem = ""
        """Why there is no key; empty if there is a key, or if no key was needed yet."""

    def tokens(self, namespace: str, pool: str) -> tuple[str, ...]:
        """Returns the tokens that engines of a pool should accept, newest first; empty without a key."""
        return tuple(admin_token(key, namespace, pool) for key in self._keys)

    def known_tokens(self, namespace: str, pool: str) -> tuple[str, ...]:
        """Returns the tokens that engines of a pool may have, newest first; empty without a key."""
        return tuple(admin_token(key, namespace, pool) for key in (*self._keys, *self._replaced))

    async def look_up(self, namespace: str, pool: str) -> tuple[str, ...]:
        """Returns the known tokens of a pool. Reads the Secret if necessary; returns no tokens if reading fails."""
        with suppress(*REQUEST_ERRORS):
            await self.ensure()
        return self.known_tokens(namespace, pool)

    async def ensure(self, *, again: bool = False) -> None:
        """Read the key from the Secret, and create the Secret if it is missing, unless the last read is recent.

        Args:
            again: True if the key may have changed. In this case, the Secret is read again sooner.

        Raises:
            RestError, aiohttp.ClientError, TimeoutError: there is no key, because a request to the API server failed.
        """
        async with self._looking:
            pause = AGAIN_SECONDS if again or not self._keys else LOOK_SECONDS
            if time.monotonic() - self._looked_at < pause:
                return
            try:
                self._take(parse_admin_keys(await self._read_or_make()))
            except REQUEST_ERRORS as error:
                # A missing namespace (404) is a lasting problem: retrying soon would not help.
                is_lasting = isinstance(error, RestError) and (error.is_lasting or error.status == 404)
                if is_lasting:
                    self._complain(explain(error))
                elif not self._keys:
                    raise
                # After a temporary error, keep using the known key until the Secret can be read, so that no pool waits.
            except AdminTokenError as error:
                self._complain(str(error))
            else:
                self.problem = ""
            self._looked_at = time.monotonic()

    async def keep_learning(self) -> None:
        """Read the Secret repeatedly until the task is cancelled, without creating the Secret.

        With the key in memory, a standby can restore a deleted Secret when it becomes the leader.
        """
        while True:
            await self._learn()
            await asyncio.sleep(LOOK_SECONDS if self._keys else AGAIN_SECONDS)

    async def _learn(self) -> None:
        async with self._looking:
            # Ignore errors, because the leader reports them.
            with suppress(*REQUEST_ERRORS, AdminTokenError):
                found = await self._api.read_secret(self._namespace, ADMIN_KEY_SECRET)
                if found is not None:
                    self._take(parse_admin_keys(found))

    def _take(self, keys: tuple[bytes, ...]) -> None:
        if self._keys and self._keys[0] not in keys:
            self._replaced = self._keys
            logger.warning(
                "the key in the Secret %s/%s was replaced, and the Secret does not have the previous key as %s. This "
                "process uses the previous key until it restarts. Afterwards, engines with tokens of the previous key "
                "refuse the operator; add the previous key to the Secret to prevent this",
                self._namespace,
                ADMIN_KEY_SECRET,
                PREVIOUS_KEY_FILE,
            )
        self._replaced = tuple(key for key in self._replaced if key not in keys)[: _MAX_KEYS - len(keys)]
        self._keys = keys

    async def _read_or_make(self) -> dict[str, str]:
        """Returns the data of the Secret.

        A missing Secret is created: with the known keys, or with a new key if no key is known.
        """
        found = await self._api.read_secret(self._namespace, ADMIN_KEY_SECRET)
        if found is None:
            keys, what = (self._keys, "the known key") if self._keys else ((new_admin_key(),), "a new key")
            data = dict(zip((KEY_FILE, PREVIOUS_KEY_FILE), keys, strict=False))
            try:
                await self._api.create_secret(self._namespace, ADMIN_KEY_SECRET, data)
                logger.info("the Secret %s/%s was created with %s", self._namespace, ADMIN_KEY_SECRET, what)
            except RestError as error:
                # Another replica may have created the Secret first, so read it below.
                if error.status != _CONFLICT:
                    raise
            found = await self._api.read_secret(self._namespace, ADMIN_KEY_SECRET)
        return found or {}

    def _complain(self, why: str) -> None:
        problem = f"the Secret {self._namespace}/{ADMIN_KEY_SECRET}: {why}"
        if problem != self.problem:
            logger.warning("no key for engines' admin ports: %s", problem)
        self.problem = problem
