"""Logs kopf in, and again when its credentials are refused."""

import asyncio
import logging
import time
from dataclasses import fields

import kopf

from tenantzone_operator.kube.connection import Connection, CredentialsError, LenientConnection

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 2.0


class KopfLogin:
    """Logs kopf in whenever the API server refuses its credentials, and retries until that succeeds.

    kopf itself would wait for a minute after an error, and would not accept credentials that were refused once. Its
    watches would end over a token that is refused for a moment, as happens while etcd is away.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._last = float("-inf")

    async def log_in(self) -> kopf.ConnectionInfo:
        """Returns credentials that are new to kopf, some seconds after the last ones."""
        complaint = ""
        while True:
            await asyncio.sleep(self._last + PAUSE_SECONDS - time.monotonic())
            self._last = time.monotonic()
            try:
                found = await self._connection.for_kopf()
            except CredentialsError as error:
                # A plugin that fails for an hour is worth one log line, not one every two seconds.
                if str(error) != complaint:
                    logger.warning("logging in: %s; trying again", error)
                complaint = str(error)
            else:
                made = _LenientLogin if isinstance(found, LenientConnection) else _Login
                return made(**{field.name: getattr(found, field.name) for field in fields(found)})


class _Login(kopf.ConnectionInfo):
    """Credentials that equal only themselves: kopf compares new credentials to those that were refused."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


class _LenientLogin(_Login, LenientConnection):
    """The same for a connection that accepts certificates without key identifiers."""
