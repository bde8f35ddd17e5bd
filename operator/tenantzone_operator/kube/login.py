"""How kopf logs in, and goes on when what it has is refused."""

import asyncio
import logging
import time
from dataclasses import fields

import kopf

from tenantzone_operator.kube.connection import Connection, CredentialsError, LenientConnection

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 2.0


class KopfLogin:
    """Logs kopf in, as often as the API server refuses what it has, and for as long as it takes.

    kopf would wait for a minute after an error, and take no credentials that were refused once: its watches would end
    for a token that is refused for a moment, as tokens are while etcd is away.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._last = float("-inf")

    async def log_in(self) -> kopf.ConnectionInfo:
        """Credentials that kopf has not seen before, some seconds after the last ones."""
        complaint = ""
        while True:
            await asyncio.sleep(self._last + PAUSE_SECONDS - time.monotonic())
            self._last = time.monotonic()
            try:
                found = await self._connection.for_kopf()
            except CredentialsError as error:
                # A plugin that is out of order for an hour is worth a line, not one each two seconds.
                if str(error) != complaint:
                    logger.warning("logging in: %s; trying again", error)
                complaint = str(error)
            else:
                made = _LenientLogin if isinstance(found, LenientConnection) else _Login
                return made(**{field.name: getattr(found, field.name) for field in fields(found)})


class _Login(kopf.ConnectionInfo):
    """Equal to itself alone: kopf compares credentials with those that were refused."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


class _LenientLogin(_Login, LenientConnection):
    """The same, of a connection that takes certificates without key identifiers."""
