"""Starts and calls the processes to which the API server moves slow parsers.

Upstream change that would make this module unnecessary: vLLM awaits its parsers and runs them in an executor.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any, Final
from weakref import WeakValueDictionary

from tenantzone_runtime.engine.patches.parsers.parser_messages import LENGTH, Answer, Call, Shared
from tenantzone_runtime.engine.patches.parsers.parser_worker import Template, kill
from tenantzone_runtime.frontend.request_context import RequestContext

_log = logging.getLogger(__name__)

MOST_PROCESSES: Final = 32
"""Maximum number of parser processes of one API server. Each process works for one request."""
MOST_OF_TENANT: Final = 8
"""Maximum number of parser processes for requests of one tenant."""
_WALL_FACTOR: Final = 20
"""Seconds that each second of a call's CPU time limit adds to its wall-clock timeout. Many calls may share few CPUs."""
_WALL_SECONDS: Final = 60
"""Constant part of a call's wall-clock timeout, in seconds."""
_START_SECONDS: Final = 30
"""Timeout in seconds for the template to fork a process."""
_REPLACE_SECONDS: Final = 10.0
"""Minimum interval in seconds between forks of failing templates, because a fork blocks the API server's event loop."""


class ProcessEndedError(Exception):
    """A parser process has ended without an answer to a call."""


class UnmovableError(Exception):
    """A parser can't continue in another process, for the reason in the message or the cause."""


class ParserProcess:
    """A process that runs the parsers of one request.

    Args:
        connection: the connection to the process.
        pid: the id of the process.
        shared: the objects that messages refer to by identity.
        release: called when the process is closed.
    """

    def __init__(self, connection: socket.socket, pid: int, shared: Shared, release: Callable[[], None]) -> None:
        self.parsers = 0
        """Number of parsers in the process."""
        self._connection = connection
        self._shared = shared
        self._release = release
        self._is_closed = False
        self.pid = pid
        self._pid_descriptor = os.pidfd_open(pid)

    def message(self, call: Call) -> bytes:
        """Returns the message for a call of a parser's method.

        Raises:
            Exception: an object in the call cannot be pickled.
        """
        return self._shared.dump(call)

    async def call(self, call: Call, message: bytes) -> Answer:
        """Make the process call a parser's method, and wait for the answer.

        Args:
            call: the call.
            message: the message for that call, from ``message``.

        Raises:
            ProcessEndedError: the process was killed, or the call timed out because it could not be interrupted.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_WALL_SECONDS + _WALL_FACTOR * (call.seconds + call.seconds_again)):
                await loop.sock_sendall(self._connection, message)
                answer: Answer = self._shared.load(await _received(self._connection))
        except (OSError, EOFError, TimeoutError) as error:
            self.close()
            raise ProcessEndedError from error
        except BaseException:
            # The connection can't be reused, because its next message would be the answer to this call.
            self.close()
            raise
        return answer

    def close(self) -> None:
        """Kill the process, even during a call."""
        if self._is_closed:
            return
        self._is_closed = True
        kill(self._pid_descriptor)
        self._connection.close()
        self._release()


class ParserProcesses:
    """The processes of one API server, forked from their template."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._shared = Shared(self._objects)
        self._template: Template | None = None
        self._replace_at = 0.0
        """Monotonic time in seconds from which another template may be forked if the current template fails."""
        self._all = asyncio.Semaphore(MOST_PROCESSES)
        self._of_tenant: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def has_place_for(self, tenant: str) -> bool:
        """Returns whether a tenant's request could get a process without waiting."""
        of_tenant = self._of_tenant.get(tenant)
        return not self._all.locked() and (of_tenant is None or not of_tenant.locked())

    async def of(self, context: RequestContext, objects: Iterable[Any]) -> ParserProcess:
        """Returns the process of a request. If the request has none, starts one as soon as the limits allow it.

        Args:
            context: the request's context. The process is killed when the context ends.
            objects: objects to which calls refer by identity, so that messages need not contain them.

        Raises:
            UnmovableError: no process can be started.
        """
        for held in context.held:
            if isinstance(held, ParserProcess):
                return held
        process = await self._start_for(context.tenant, list(objects))
        context.hold(process)
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

    def open(self, objects: Iterable[Any]) -> None:
        """Fork the template before a request needs it.

        Args:
            objects: objects to which calls refer by identity, so that messages need not contain them.

        Raises:
            OSError: the fork failed.
        """
        self._share(objects)
        if self._template is None:
            self._template = self._new_template()

    async def _start(self, objects: list[Any], release: Callable[[], None]) -> ParserProcess:
        self._share(objects)
        try:
            return await self._forked(release)
        except (OSError, EOFError) as error:
            if time.monotonic() < self._replace_at:
                raise UnmovableError from error
            _log.warning("the template of parser processes has ended; forking another template: %r", error)
        try:
            return await self._forked(release)
        except (OSError, EOFError) as error:
            raise UnmovableError from error

    def _share(self, objects: Iterable[Any]) -> None:
        if new := [each for each in objects if each not in self._shared]:
            self.close()
            self._replace_at = 0.0
            self._objects += new
            self._shared = Shared(self._objects)

    async def _forked(self, release: Callable[[], None]) -> ParserProcess:
        if self._template is None:
            self._template = self._new_template()
        template = self._template
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            with theirs:
                socket.send_fds(template.connection, [b"+"], [theirs.fileno()])
            async with asyncio.timeout(_START_SECONDS):
                pid = self._shared.load(await _received(ours))
            if isinstance(pid, OSError):
                raise UnmovableError from pid
            process = ParserProcess(ours, pid, self._shared, release)
        except BaseException as error:
            ours.close()
            # Another request may have replaced the template meanwhile.
            if isinstance(error, OSError | EOFError) and self._template is template:
                self.close()
            raise
        self._replace_at = 0.0
        return process

    def _new_template(self) -> Template:
        now = time.monotonic()
        if now < self._replace_at:
            raise OSError("the last template of parser processes ended before it forked a process")
        self._replace_at = now + _REPLACE_SECONDS
        return Template(self._shared)

    def close(self) -> None:
        """Kill the template. Processes that were forked from it continue."""
        if self._template is not None:
            self._template.close()
            self._template = None


async def _received(connection: socket.socket) -> bytes:
    """Returns the next message.

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
