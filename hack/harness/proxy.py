"""A bad network between the operator and the real API server, as bad as a test asks for."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from tenantzone_operator.kube.credentials.kubeconfig import from_kubeconfig

_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_LARGEST_LINE = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Refusal:
    """Answers with a status of the proxy's own, without asking the API server."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()


TOO_MANY = Refusal(429, (("Retry-After", "1"),))
LOST = "lost"
"""The request takes effect, and the connection breaks before the answer."""
BROKEN = "broken"
"""The connection breaks at once."""
HUNG = "hung"
"""No answer, ever."""

Fault = Refusal | str


@dataclass(slots=True)
class Faults:
    """Faults to inject. Each hits the first requests of each method and path, so each kind of request meets it."""

    writes: Fault | None = None
    reads: Fault | None = None
    watches: Fault | None = None
    only: str = ""
    """Hit only paths that have this in them."""
    times: int | None = 1
    """The number of requests of each to hit; None: all of them."""
    strikes: Callable[[], bool] = lambda: True
    """Called for each matching request; returns whether it is hit."""
    stream: Callable[[list[bytes]], list[bytes]] | None = None
    """Changes events that arrive together, or one by one."""
    drop_every: int = 0
    """Break a watch after this many events."""


class Proxy:
    """Stands between the operator and the API server, in a thread of its own.

    Args:
    kubeconfig: where the API server is, and as whom to call it. Clients of the proxy need no credentials.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self._upstream = from_kubeconfig(str(kubeconfig))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._watches: set[asyncio.Queue[bytes | None]] = set()
        self._hits: Counter[tuple[str, str]] = Counter()
        self.faults = Faults()
        self.writes = 0
        """Requests that write, which took effect or not."""
        self.after_write: Callable[[int], Awaitable[None]] | None = None
        """Awaited with the number of each write that took effect, before the answer goes out."""
        self._released: asyncio.Event
        self._session: aiohttp.ClientSession
        self._runner: web.AppRunner
        self.url = ""
        self.kubeconfig = Path()
        """Leads to the proxy."""

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result()

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def heal(self) -> None:
        """Stop all faults; hanging requests break."""
        self.faults = Faults()
        self._loop.call_soon_threadsafe(self._release)
        self.after_write = None
        self._hits.clear()

    def send_into_watches(self, *lines: bytes) -> None:
        """Send lines to all current watches, as if they came from the API server."""
        for line in lines:
            for watch in list(self._watches):
                self._loop.call_soon_threadsafe(watch.put_nowait, line)

    def break_watches(self) -> None:
        for watch in list(self._watches):
            self._loop.call_soon_threadsafe(watch.put_nowait, None)

    async def _end(self) -> None:
        await self._runner.cleanup()
        # Watches whose client has gone wait for an event to find out.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._session.close()

    def _release(self) -> None:
        self._released.set()
        self._released = asyncio.Event()

    async def _serve(self) -> None:
        self._released = asyncio.Event()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._upstream.as_ssl_context(), limit=0),
            headers=self._upstream.as_http_headers(),
            auto_decompress=False,
        )
        app = web.Application(client_max_size=16 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        is_watch, is_write = "watch" in request.query, request.method in _WRITES
        fault = self._fault(request, is_watch, is_write)
        self.writes += is_write
        if isinstance(fault, Refusal):
            return web.json_response(_status(fault.status), status=fault.status, headers=dict(fault.headers))
        if fault == HUNG:
            await self._released.wait()
            return _broken(request)
        if fault == BROKEN:
            return _broken(request)
        try:
            return await (self._forward_watch(request) if is_watch else self._forward(request, fault))
        except aiohttp.ClientError:
            # The API server is away.
            return _broken(request)

    async def _forward(self, request: web.Request, fault: Fault | None) -> web.Response:
        is_write, number = request.method in _WRITES, self.writes
        async with self._ask(request, await request.read() or None) as answer:
            body = await answer.read()
        if is_write and self.after_write is not None and answer.status < 300:
            await self.after_write(number)
        if fault == LOST:
            return _broken(request)
        return web.Response(body=body, status=answer.status, headers=_kept(answer))

    def _fault(self, request: web.Request, is_watch: bool, is_write: bool) -> Fault | None:
        faults = self.faults
        fault = faults.watches if is_watch else faults.writes if is_write else faults.reads
        key = (f"{request.method} {is_watch}", request.path)
        if fault is None or faults.only not in request.path or not faults.strikes():
            return None
        if faults.times is not None and self._hits[key] >= faults.times:
            return None
        self._hits[key] += 1
        return fault

    def _ask(self, request: web.Request, body: bytes | None = None) -> Any:
        headers = {name: request.headers[name] for name in ("Content-Type", "Accept") if name in request.headers}
        timeout = aiohttp.ClientTimeout(total=None)
        url = f"{self._upstream.server}{request.rel_url}"
        return self._session.request(
            request.method, url, data=body, headers=headers, timeout=timeout, read_bufsize=_LARGEST_LINE
        )

    async def _forward_watch(self, request: web.Request) -> web.StreamResponse:
        events: asyncio.Queue[bytes | None] = asyncio.Queue()
        async with self._ask(request) as answer:
            response = web.StreamResponse(status=answer.status, headers=_kept(answer))
            await response.prepare(request)
            reading = asyncio.create_task(_read(answer, events))
            self._watches.add(events)
            try:
                await self._send(request, response, events)
            finally:
                self._watches.discard(events)
                reading.cancel()
        return response

    async def _send(
        self, request: web.Request, response: web.StreamResponse, events: asyncio.Queue[bytes | None]
    ) -> None:
        sent = 0
        async for lines in _batches(events):
            for line in self.faults.stream(lines) if self.faults.stream is not None else lines:
                try:
                    await response.write(line)
                except ConnectionError:
                    return
                sent += 1
                if self.faults.drop_every and sent >= self.faults.drop_every:
                    _broken(request)
                    return
        _broken(request)


async def _read(answer: aiohttp.ClientResponse, events: asyncio.Queue[bytes | None]) -> None:
    with suppress(aiohttp.ClientError, ValueError):
        async for line in answer.content:
            events.put_nowait(line)
    events.put_nowait(None)


async def _batches(events: asyncio.Queue[bytes | None]) -> AsyncIterator[list[bytes]]:
    """Yields lists of events that arrived together, until the stream should end."""
    while True:
        lines = [await events.get()]
        while not events.empty():
            lines.append(events.get_nowait())
        yield [line for line in lines if line is not None]
        if None in lines:
            return


def _broken(request: web.Request) -> web.Response:
    """The connection without another byte."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _status(code: int) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "made up by a test", "code": code}


def _kept(answer: aiohttp.ClientResponse) -> dict[str, str]:
    names = ("Content-Type", "Content-Encoding")
    return {name: answer.headers[name] for name in names if name in answer.headers}


def error_event(code: int) -> bytes:
    """Returns the event that ends a watch with an error."""
    return json.dumps({"type": "ERROR", "object": _status(code)}).encode() + b"\n"


@contextmanager
def proxied_for_operator(kubeconfig: Path, folder: Path) -> Iterator[Proxy]:
    """A proxy for as long as the block runs."""
    proxy = Proxy(kubeconfig)
    proxy.start()
    proxy.kubeconfig = folder / "proxy.kubeconfig"
    named = {
        "clusters": [{"name": "proxy", "cluster": {"server": proxy.url}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}],
        "current-context": "proxy",
    }
    proxy.kubeconfig.write_text(yaml.safe_dump(named))
    try:
        yield proxy
    finally:
        proxy.stop()
