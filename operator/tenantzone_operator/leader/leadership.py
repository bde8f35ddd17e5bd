"""Runs a term's work while, and only while, this process leads."""

import asyncio
import logging
import socket
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp

from tenantzone_operator.kube.api import explain
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.leader.lease import Election

logger = logging.getLogger(__name__)

DEFAULT_NAMESPACE = "tenantzone-system"
_RELEASE_SECONDS = 2.0
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

Term = Callable[[], Coroutine[Any, Any, None]]
"""What a leader does until it is cancelled."""


class LeaseExpired(aiohttp.ClientConnectionError):
    """A write that was not sent, because this process leads no longer."""


class Alone:
    """The leadership of a process that knows of no other: it leads from its start to its end."""

    is_leading = True
    silence_seconds = 0.0

    async def run(self, term: Term) -> None:
        await term()


class Leadership:
    """The leadership of one of several processes, of which one leads.

    Args:
        election: nobody else uses it.
    """

    def __init__(self, election: Election) -> None:
        self._election = election
        # One request that gets lost leaves time for another.
        self._patience = election.timing.renew_deadline / 2
        self._complaint = ""

    @property
    def is_leading(self) -> bool:
        """Whether this process may write now."""
        return self._election.is_leading

    @property
    def silence_seconds(self) -> float:
        """For how long the API server has not answered to the election."""
        return self._election.silence_seconds

    async def run(self, term: Term) -> None:
        """Lead whenever it is possible, until cancelled or until a term fails; then let another process lead."""
        try:
            while True:
                await self._acquire()
                logger.info("leading")
                await self._lead(term)
                logger.warning("not leading any more: %s", self._complaint or "the Lease was not renewed in time")
        finally:
            await self._try(self._election.release, _RELEASE_SECONDS)

    async def _acquire(self) -> None:
        followed = None
        while not await self._try(self._election.attempt, self._patience):
            if self._election.holder != followed:
                followed = self._election.holder
                logger.info("standing by: %s", f"{followed} leads" if followed else "nobody leads")
            await asyncio.sleep(self._election.timing.retry / 2)

    async def _lead(self, term: Term) -> None:
        """Run one term to its end."""
        working = asyncio.create_task(term(), name="term")
        keeping = asyncio.create_task(self._keep(), name="lease")
        try:
            await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._election.step_down()
            has_failed = working.done()
            for task in (working, keeping):
                task.cancel()
            await asyncio.gather(working, keeping, return_exceptions=True)
        if has_failed:
            working.result()

    async def _keep(self) -> None:
        """Renew the Lease until that was not possible for too long."""
        while self._election.is_leading:
            await asyncio.sleep(min(self._election.timing.retry, self._election.remaining_seconds))
            if self._election.is_leading:
                # What is late is lost: the deadline is the moment from which on nothing may be written.
                limit = min(self._patience, self._election.remaining_seconds)
                await self._try(self._election.attempt, limit)

    async def _try(self, what: Callable[[], Awaitable[Any]], limit: float) -> Any:
        """What a request to the API server returns; None if it fails, or takes longer than ``limit`` seconds."""
        try:
            async with asyncio.timeout(limit):
                done = await what()
        except (RestError, aiohttp.ClientError, TimeoutError) as error:
            complaint = f"the Lease: {explain(error)}"
            if isinstance(error, RestError) and error.status in (403, 404):
                complaint += " (--leader-elect-namespace says where it lies, --no-leader-elect does without it)"
            # An API server that is away for an hour is worth a line, not one a second.
            if complaint != self._complaint:
                logger.warning("%s; trying again", complaint)
            self._complaint = complaint
            return None
        self._complaint = ""
        return done


def fence(may_write: Callable[[], bool]) -> aiohttp.TraceConfig:
    """A trace config that stops requests which write while this process may not.

    It looks when a connection is there, for which a request may have waited while the process was stopped, and once
    more when the body is handed over: aiohttp writes that in a task of its own, after all others had their turn.
    """

    async def began(_: aiohttp.ClientSession, request: SimpleNamespace, start: aiohttp.TraceRequestStartParams) -> None:
        request.writes = start.method != "GET"

    async def is_about_to_go(_: object, request: SimpleNamespace, __: object) -> None:
        if request.writes and not may_write():
            raise LeaseExpired("not sent, this process leads no longer")

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(began)
    trace.on_connection_create_end.append(is_about_to_go)
    trace.on_connection_reuseconn.append(is_about_to_go)
    trace.on_request_chunk_sent.append(is_about_to_go)
    return trace


def new_identity() -> str:
    """An identity that no other process has: the host's or pod's name for people, and a random part."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


def own_namespace() -> str:
    """The namespace of the pod that this process runs in, else the one in which the manifests put it."""
    try:
        return _OWN_NAMESPACE.read_text().strip()
    except OSError:
        return DEFAULT_NAMESPACE
