"""Gives kopf credentials for the API server, and new ones when the server refuses them."""

import asyncio
import logging
import time
from dataclasses import fields

import kopf

from tenantzone_operator.kube.credentials.connection import Connection, CredentialsError, LenientConnection

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 2.0


class KopfLogin:
    """Logs kopf in whenever the API server refuses its credentials, retrying until it succeeds.

    Without this class, kopf would wait for a minute after an error, and would never again use credentials that were
    refused once. The API server refuses even valid tokens while etcd is down, and kopf's watches would end after such a
    refusal.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._last = float("-inf")

    async def log_in(self) -> kopf.ConnectionInfo:
        """Returns credentials that kopf treats as new, at least ``PAUSE_SECONDS`` after the previous ones."""
        complaint = ""
        while True:
            await asyncio.sleep(self._last + PAUSE_SECONDS - time.monotonic())
            self._last = time.monotonic()
            try:
                found = await self._connection.for_kopf()
            except CredentialsError as error:
                # Log each error once, because a credential plugin may fail every two seconds for an hour.
                if str(error) != complaint:
                    logger.warning("can't log in to the API server: %s; retrying", error)
                complaint = str(error)
            else:
                made = _LenientLogin if isinstance(found, LenientConnection) else _Login
                return made(**{field.name: getattr(found, field.name) for field in fields(found)})


class _Login(kopf.ConnectionInfo):
    """Credentials compared by identity, because kopf rejects new credentials that equal refused ones."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


class _LenientLogin(_Login, LenientConnection):
    """Credentials compared by identity, for a connection that accepts certificates without key identifiers."""
