"""The operator's admin key, from which it derives the tokens for engines' admin ports."""

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
"""Minimum number of seconds between two reads of the Secret, however many engines refuse the tokens."""
LOOK_SECONDS = 60.0
"""Seconds between two reads of the Secret while no engine refuses the tokens, to restore a deleted Secret."""
_MAX_KEYS = 3
"""Maximum number of keys, which is the maximum number of signatures of a config."""
_CONFLICT = 409


class AdminKey:
    """The admin key from its Secret in the operator's own namespace, which is created if missing, never overwritten.

    If the Secret is deleted, the operator creates it again with all known keys, including the previous key during a
    key rotation.

    If the key in the Secret is replaced, the operator also uses the replaced key until its process ends, so that
    engines with tokens of the replaced key still answer and trust the config. The operator never writes the replaced
    key to a Secret.

    Args:
        api: a client to read and create the Secret.
        namespace: the operator's own namespace.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._keys: tuple[bytes, ...] = ()
        """Keys in the Secret."""
        self._replaced: tuple[bytes, ...] = ()
        """Keys that were in the Secret before, without the current keys; at most three keys together with these."""
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
        """Returns the known tokens of a pool. Reads the Secret if no key is known yet; returns none if that fails."""
        with suppress(*REQUEST_ERRORS):
            await self.ensure()
        return self.known_tokens(namespace, pool)

    async def ensure(self, *, again: bool = False) -> None:
        """Read the key, and create it if it is missing.

        Args:
            again: also check whether the key has changed.

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
                # A missing namespace is a lasting problem: retrying soon does not help.
                is_lasting = isinstance(error, RestError) and (error.is_lasting or error.status == 404)
                if is_lasting:
                    self._complain(explain(error))
                elif not self._keys:
                    raise
                # Otherwise continue with the known key until the next read, so that no pool has to wait.
            except AdminTokenError as error:
                self._complain(str(error))
            else:
                self.problem = ""
            self._looked_at = time.monotonic()

    async def keep_learning(self) -> None:
        """Read the Secret repeatedly until cancelled, without ever creating it.

        A standby therefore knows the key when it becomes the leader, even if the Secret was deleted in the meantime.
        """
        while True:
            await self._learn()
            await asyncio.sleep(LOOK_SECONDS if self._keys else AGAIN_SECONDS)

    async def _learn(self) -> None:
        async with self._looking:
            # The leader reports errors.
            with suppress(*REQUEST_ERRORS, AdminTokenError):
                found = await self._api.read_secret(self._namespace, ADMIN_KEY_SECRET)
                if found is not None:
                    self._take(parse_admin_keys(found))

    def _take(self, keys: tuple[bytes, ...]) -> None:
        if self._keys and self._keys[0] not in keys:
            self._replaced = self._keys
            logger.warning(
                "the key in the Secret %s/%s was replaced, and the Secret does not contain the former key as %s, so "
                "this process also uses the former key; after a restart, engines with tokens of the former key refuse "
                "the operator",
                self._namespace,
                ADMIN_KEY_SECRET,
                PREVIOUS_KEY_FILE,
            )
        self._replaced = tuple(key for key in self._replaced if key not in keys)[: _MAX_KEYS - len(keys)]
        self._keys = keys

    async def _read_or_make(self) -> dict[str, str]:
        """Returns the data of the Secret, and creates a deleted Secret again with the keys that engines know."""
        found = await self._api.read_secret(self._namespace, ADMIN_KEY_SECRET)
        if found is None:
            keys, what = (self._keys, "the known key") if self._keys else ((new_admin_key(),), "a new key")
            data = dict(zip((KEY_FILE, PREVIOUS_KEY_FILE), keys, strict=False))
            try:
                await self._api.create_secret(self._namespace, ADMIN_KEY_SECRET, data)
                logger.info("the Secret %s/%s was created with %s", self._namespace, ADMIN_KEY_SECRET, what)
            except RestError as error:
                # Another replica may have created it first.
                if error.status != _CONFLICT:
                    raise
            found = await self._api.read_secret(self._namespace, ADMIN_KEY_SECRET)
        return found or {}

    def _complain(self, why: str) -> None:
        problem = f"the Secret {self._namespace}/{ADMIN_KEY_SECRET}: {why}"
        if problem != self.problem:
            logger.warning("no key for engines' admin ports: %s", problem)
        self.problem = problem
