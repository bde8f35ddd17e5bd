"""A small API server, and a proxy before it: they remember who came, and how."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from bench.kubernetes_clients.libraries import NAME, NAMESPACE
from hack.controlplane.credentials import Authority

_OBJECT = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": NAME, "namespace": NAMESPACE, "uid": "0e1c", "resourceVersion": "1"},
    "data": {"key": "value"},
}


@dataclass(frozen=True, slots=True)
class Visit:
    """A request: with which credentials, and on whose behalf."""

    authorization: str | None
    certificate: str | None
    """The common name of the client's certificate."""
    impersonated: str | None


@dataclass(slots=True)
class ApiServer:
    """One that answers each request with the same object, or with 401."""

    accepts: Callable[[Visit], bool]
    url: str = ""
    visits: list[Visit] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        """The object for whom it accepts."""
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        visit = Visit(
            request.headers.get("Authorization"),
            _common_name(certificate) if certificate else None,
            request.headers.get("Impersonate-User"),
        )
        if request.path.rstrip("/") == "/version":
            return web.json_response({"major": "1", "minor": "36", "gitVersion": "v1.36.0"})
        self.visits.append(visit)
        if self.accepts(visit):
            return web.json_response(_OBJECT)
        refusal = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "Unauthorized", "code": 401}
        return web.json_response(refusal, status=401)


def _common_name(certificate: dict[str, object]) -> str | None:
    subject = certificate.get("subject")
    pairs = [pair for part in subject for pair in part] if isinstance(subject, tuple) else []
    return next((value for key, value in pairs if key == "commonName"), None)


@asynccontextmanager
async def serving(
    accepts: Callable[[Visit], bool], host: str, authority: Authority, certificate: tuple[Path, Path] | None
) -> AsyncIterator[ApiServer]:
    """An API server on loopback.

    Args:
        accepts: whose requests are answered.
        host: an address of loopback.
        authority: of the clients whose certificates are believed.
        certificate: the server's, and its key; None: without TLS.
    """
    server = ApiServer(accepts)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    context = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_cert_chain(*certificate)
    try:
        await web.TCPSite(runner, host, 0, ssl_context=context).start()
        server.url = f"{'https' if certificate else 'http'}://{host}:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()


@dataclass(slots=True)
class Proxy:
    """Connects each client (CONNECT) with the requested port of loopback, whatever the name."""

    url: str = ""
    connections: int = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A tunnel, until either side has had enough."""
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, *_ = head.decode().split()
        if method != "CONNECT":
            writer.close()
            return
        self.connections += 1
        there, back = await asyncio.open_connection("127.0.0.1", int(target.rpartition(":")[2]))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_pour(reader, back), _pour(there, writer))


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def proxying() -> AsyncIterator[Proxy]:
    """A proxy on loopback."""
    proxy = Proxy()
    listener = await asyncio.start_server(proxy.answer, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listener.close()
