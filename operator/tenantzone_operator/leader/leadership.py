"""Runs the leader's work while this process is the leader."""

import asyncio
import logging
import socket
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp

from tenantzone_contract.kube_names import OPERATOR_NAMESPACE
from tenantzone_operator.kube.api import explain
from tenantzone_operator.kube.rest import REQUEST_ERRORS, RestError
from tenantzone_operator.leader.lease import Election

logger = logging.getLogger(__name__)

_RELEASE_SECONDS = 2.0
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

Term = Callable[[], Coroutine[Any, Any, None]]
"""The leader's work, which runs until it is cancelled."""


class LeaseExpired(aiohttp.ClientConnectionError):
    """A write request was not sent, because this process is no longer the leader."""


class Alone:
    """The leadership of a process without leader election, which leads from its start to its end."""

    is_leading = True
    silence_seconds = 0.0

    async def run(self, term: Term) -> None:
        await term()


class Leadership:
    """The leadership of a process that competes with other replicas for a Lease.

    Args:
        election: this process's part in the election; no other object may use it.
    """

    def __init__(self, election: Election) -> None:
        self._election = election
        # Half of the deadline leaves time for a second request if the first is lost.
        self._patience = election.timing.renew_deadline / 2
        self._complaint = ""

    @property
    def is_leading(self) -> bool:
        """Whether this process may write now."""
        return self._election.is_leading

    @property
    def silence_seconds(self) -> float:
        """Seconds since the API server last answered a request of the election."""
        return self._election.silence_seconds

    async def run(self, term: Term) -> None:
        """Lead whenever possible, until the task is cancelled or a term fails, then release the Lease."""
        try:
            while True:
                await self._acquire()
                logger.info("this replica leads")
                await self._lead(term)
                logger.warning("no longer leading: %s", self._complaint or "the Lease was not renewed in time")
        finally:
            await self._try(self._election.release, _RELEASE_SECONDS)

    async def _acquire(self) -> None:
        followed = None
        while not await self._try(self._election.attempt, self._patience):
            if self._election.holder != followed:
                followed = self._election.holder
                logger.info("standing by: %s", f"{followed} leads" if followed else "no replica leads")
            await asyncio.sleep(self._election.timing.retry / 4)

    async def _lead(self, term: Term) -> None:
        """Run one term until this process loses the Lease or the term's work fails."""
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
        """Renew the Lease until no renewal has succeeded for ``renew_deadline`` seconds."""
        while self._election.is_leading:
            await asyncio.sleep(min(self._election.timing.retry, self._election.remaining_seconds))
            if self._election.is_leading:
                # Do not wait beyond the deadline, because this process may not write after the deadline.
                limit = min(self._patience, self._election.remaining_seconds)
                await self._try(self._election.attempt, limit)

    async def _try(self, what: Callable[[], Awaitable[Any]], limit: float) -> Any:
        """Returns the result of a request to the API server; None if it fails or takes more than ``limit`` seconds."""
        try:
            async with asyncio.timeout(limit):
                done = await what()
        except REQUEST_ERRORS as error:
            complaint = f"a request for the Lease failed: {explain(error)}"
            if isinstance(error, RestError) and error.status in (403, 404):
                complaint += " (--leader-elect-namespace sets its namespace, --no-leader-elect runs without it)"
            # Do not repeat a complaint, because the API server may be unreachable for an hour.
            if complaint != self._complaint:
                logger.warning("%s; retrying", complaint)
            self._complaint = complaint
            return None
        self._complaint = ""
        return done


def fence(may_write: Callable[[], bool]) -> aiohttp.TraceConfig:
    """Returns a trace config that prevents write requests while this process may not write.

    The first check runs when the request has a connection, because the process may have been suspended while the
    request waited for the connection. A second check runs later, when aiohttp sends the body in another task.
    """

    async def began(_: aiohttp.ClientSession, request: SimpleNamespace, start: aiohttp.TraceRequestStartParams) -> None:
        request.writes = start.method != "GET"

    async def is_about_to_go(_: object, request: SimpleNamespace, __: object) -> None:
        if request.writes and not may_write():
            raise LeaseExpired("the request was not sent, because this process is no longer the leader")

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(began)
    trace.on_connection_create_end.append(is_about_to_go)
    trace.on_connection_reuseconn.append(is_about_to_go)
    trace.on_request_chunk_sent.append(is_about_to_go)
    return trace


def new_identity() -> str:
    """Returns a unique identity for this process: the name of the host or pod, and a random part."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


def own_namespace() -> str:
    """Returns the namespace of this process's pod. Outside a pod, returns the namespace that the manifests use."""
    try:
        return _OWN_NAMESPACE.read_text().strip()
    except OSError:
        return OPERATOR_NAMESPACE
