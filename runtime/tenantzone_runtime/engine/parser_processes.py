"""The processes in which the API server has answers parsed that take a parser long."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final
from weakref import WeakValueDictionary

from tenantzone_runtime.door.bearing import Bearing
from tenantzone_runtime.engine.parser_messages import LENGTH, Answer, Call, Shared
from tenantzone_runtime.engine.parser_worker import fork_template

_log = logging.getLogger(__name__)

MOST_PROCESSES: Final = 32
"""The most processes of one API server. Each is for one request."""
MOST_OF_TENANT: Final = 8
"""The most processes for requests of one tenant."""
_WALL_FACTOR: Final = 20
"""How much longer a call may take than its processor time, among many others on few processors, ..."""
_WALL_SECONDS: Final = 60
"""... and then that much."""


class ProcessEndedError(Exception):
    """The process has ended without an answer."""


class UnmovableError(Exception):
    """A parser cannot go on in another process."""


class ParserProcess:
    """A process that parses the answers of one request.

    Args:
        connection: to it.
        pid: of it.
        shared: what messages name.
        release: called once it is closed.
    """

    def __init__(self, connection: socket.socket, pid: int, shared: Shared, release: Callable[[], None]) -> None:
        self.parsers = 0
        """The number of parsers that it has."""
        self._connection = connection
        self._shared = shared
        self._release = release
        self._is_closed = False
        self.pid = pid
        self._pid_descriptor = os.pidfd_open(pid)

    async def call(self, call: Call) -> Answer:
        """Have it call a parser's method.

        Raises:
            ProcessEndedError: it could not be interrupted, or was killed.
            UnmovableError: something in the call cannot be pickled. The process has heard nothing of it.
        """
        try:
            message = self._shared.dump(call)
        except Exception as error:
            raise UnmovableError from error
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_WALL_SECONDS + _WALL_FACTOR * (call.seconds + call.seconds_again)):
                await loop.sock_sendall(self._connection, message)
                answer: Answer = self._shared.load(await _received(self._connection))
        except (OSError, EOFError, TimeoutError) as error:
            self.close()
            raise ProcessEndedError from error
        except BaseException:
            # What is read next would be the answer to this call.
            self.close()
            raise
        return answer

    def close(self) -> None:
        """End it, whatever it is at."""
        if self._is_closed:
            return
        self._is_closed = True
        # It may have ended.
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pid_descriptor, signal.SIGKILL)
        os.close(self._pid_descriptor)
        self._connection.close()
        self._release()


class ParserProcesses:
    """The processes of one API server, forked of a template of theirs."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._shared = Shared(self._objects)
        self._template: socket.socket | None = None
        self._all = asyncio.Semaphore(MOST_PROCESSES)
        self._of_tenant: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def has_place_for(self, tenant: str) -> bool:
        """Return whether a request of a tenant gets a process at once."""
        of_tenant = self._of_tenant.get(tenant)
        return not self._all.locked() and (of_tenant is None or not of_tenant.locked())

    async def of(self, bearing: Bearing, objects: Iterable[Any]) -> ParserProcess:
        """Return the process of a request. If it has none, start one as soon as there is a place for it.

        Args:
            bearing: of the request. The process ends with it.
            objects: what calls may name, and not have in them.

        Raises:
            UnmovableError: no process can be started.
        """
        for held in bearing.held:
            if isinstance(held, ParserProcess):
                return held
        process = await self._start_for(bearing.tenant, list(objects))
        bearing.hold(process)
        return process

    async def _start_for(self, tenant: str, objects: list[Any]) -> ParserProcess:
        of_tenant = self._of_tenant.setdefault(tenant, asyncio.Semaphore(MOST_OF_TENANT))
        await of_tenant.acquire()
        try:
            await self._all.acquire()
        except BaseException:
            of_tenant.release()
            raise

        def release() -> None:
            self._all.release()
            of_tenant.release()

        try:
            return await self._start(objects, release)
        except BaseException:
            release()
            raise

    async def _start(self, objects: list[Any], release: Callable[[], None]) -> ParserProcess:
        if new := [each for each in objects if each not in self._shared]:
            self.close()
            self._objects += new
            self._shared = Shared(self._objects)
        try:
            return await self._forked(release)
        except (OSError, EOFError) as error:
            _log.warning("the process that parser processes are forked of has ended; another one is forked: %r", error)
            self.close()
        try:
            return await self._forked(release)
        except (OSError, EOFError) as error:
            self.close()
            raise UnmovableError from error

    async def _forked(self, release: Callable[[], None]) -> ParserProcess:
        if self._template is None:
            self._template = fork_template(self._shared)
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            with theirs:
                socket.send_fds(self._template, [b"+"], [theirs.fileno()])
            pid = self._shared.load(await _received(ours))
            return ParserProcess(ours, pid, self._shared, release)
        except BaseException:
            ours.close()
            raise

    def close(self) -> None:
        """End the template. The processes that were forked of it go on."""
        if self._template is not None:
            self._template.close()
            self._template = None


async def _received(connection: socket.socket) -> bytes:
    """Return the next message.

    Raises:
        EOFError: the connection has ended.
    """
    (length,) = LENGTH.unpack(await _exactly(connection, LENGTH.size))
    return await _exactly(connection, length)


async def _exactly(connection: socket.socket, count: int) -> bytes:
    loop = asyncio.get_running_loop()
    message = bytearray()
    while len(message) < count:
        part = await loop.sock_recv(connection, min(count - len(message), 2**20))
        if not part:
            raise EOFError
        message += part
    return bytes(message)
