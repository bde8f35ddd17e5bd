"""Sends JSON requests to the API server, and raises `RestError` for each refused request."""

import asyncio
import json
import time
from asyncio import sslproto
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

import aiohttp
import kopf

from tenantzone_operator.kube.credentials.service_account import CredentialsError
from tenantzone_operator.metrics.instruments import count_api_request

TIMEOUT_SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_HEADERS = {"Accept": "application/json", "User-Agent": "tenantzone-operator"}
_AT_ONCE = 32
"""Maximum number of concurrent requests. Further requests wait; the wait does not count towards their timeout."""
_LONGEST_EVENT = 8 * 2**20
"""Maximum size of a watch event in bytes: several times the largest object that the API server stores."""

# asyncio allocates a buffer for each TLS connection, by default 16 times the size of a TLS record. With one watch for
# each pool, these buffers would add up.
sslproto.SSLProtocol.max_size = 16 * 2**10

Login = Callable[[], Awaitable[kopf.ConnectionInfo]]


class RestError(Exception):
    """The API server has refused a request."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {message}")
        self.status = status
        self.message = message
        self.retry_after = retry_after
        """Seconds after which to retry, from the Retry-After header; None if the answer has no such header."""

    @property
    def is_forbidden(self) -> bool:
        """Whether the operator lacks the right for the request."""
        return self.status == 403

    @property
    def is_outdated(self) -> bool:
        """Whether the object was changed, deleted or created since the last read, or its namespace was deleted."""
        return self.status in (404, 409)

    @property
    def is_lasting(self) -> bool:
        """Whether the API server would refuse the same request again, so that retrying does not help."""
        return 400 <= self.status < 500 and self.status not in (401, 404, 409, 429)


REQUEST_ERRORS: Final = (RestError, aiohttp.ClientError, TimeoutError)
"""Errors of a request to the API server: a refusal, a failed connection, or a timeout."""


@dataclass(slots=True, eq=False)
class _Session:
    client: aiohttp.ClientSession
    server: str
    requests: int = 0
    """Number of requests in flight."""


class Rest:
    """A session with the API server, used as a context manager.

    Args:
        log_in: called at the start, and again when the API server refuses the credentials.
        trace_configs: called before each request is sent; may raise an exception to prevent the request.
    """

    def __init__(self, log_in: Login, *, trace_configs: Sequence[aiohttp.TraceConfig] = ()) -> None:
        self._log_in = log_in
        self._trace_configs = list(trace_configs)
        self._login = asyncio.Lock()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._session: _Session | None = None

    async def __aenter__(self) -> Self:
        await self._renew(None)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.client.close()

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT_SECONDS,  # noqa: ASYNC109 (passed on to aiohttp)
    ) -> dict[str, Any]:
        """Send a request to the API server, and return the object in the answer.

        Raises:
            RestError: the API server refused the request.
            aiohttp.ClientError: the connection failed, or the answer is not a JSON object.
            TimeoutError: no answer arrived within ``timeout`` seconds.
        """
        async with self._slots:
            async with self._used() as session:
                try:
                    return await self._call(session, method, path, body, content_type, params, headers, timeout)
                except RestError as error:
                    if error.status != 401:
                        raise
                # Service account tokens are rotated, so log in again and retry.
                await self._renew(session)
            async with self._used() as session:
                return await self._call(session, method, path, body, content_type, params, headers, timeout)

    async def watch(
        self, path: str, params: Mapping[str, str], patience: float, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yields the events of a watch until the API server ends it.

        A watch does not count against the limit of concurrent requests.

        Args:
            path: the URL path of the resources.
            params: additional query parameters.
            patience: the timeout of the whole watch, in seconds.
            headers: additional headers.

        Raises:
            RestError: the API server refused the request.
            aiohttp.ClientError: the connection failed or broke, or an event is not a JSON object.
            TimeoutError: the watch did not end within ``patience`` seconds.
        """
        async with self._used() as session:
            async with session.client.get(
                session.server + path,
                params={**params, "watch": "true"},
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=patience, sock_connect=_CONNECT_SECONDS),
                allow_redirects=False,
            ) as response:
                if response.status == 200:
                    async for line in _lines(response):
                        yield _object(line)
                    return
                refusal = _refusal(response, await response.text(errors="replace"))
            if refusal.status == 401:
                await self._renew(session)
            raise refusal

    @asynccontextmanager
    async def _used(self) -> AsyncIterator[_Session]:
        """Provides the session for one request. A session that was replaced is closed after its last request."""
        session = self._session
        assert session is not None, "use Rest as a context manager"
        session.requests += 1
        try:
            yield session
        finally:
            session.requests -= 1
            if session is not self._session and session.requests == 0:
                await session.client.close()

    async def _call(
        self,
        session: _Session,
        method: str,
        path: str,
        body: object,
        content_type: str,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
        timeout: float,  # noqa: ASYNC109
    ) -> dict[str, Any]:
        began, code = time.monotonic(), "error"
        try:
            response, text = await self._ask(session, method, path, body, content_type, params, headers, timeout)
            code = str(response.status)
        finally:
            count_api_request(method, path, code, time.monotonic() - began)
        if not 200 <= response.status < 300:
            raise _refusal(response, text)
        return _object(text)

    async def _ask(
        self,
        session: _Session,
        method: str,
        path: str,
        body: object,
        content_type: str,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
        timeout: float,  # noqa: ASYNC109
    ) -> tuple[aiohttp.ClientResponse, str]:
        """Returns the answer to a request, whatever its status, and the answer's text."""
        async with session.client.request(
            method,
            session.server + path,
            params=params,
            data=json.dumps(body, separators=(",", ":")) if body is not None else None,
            headers={**({"Content-Type": content_type} if body is not None else {}), **(headers or {})},
            timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=_CONNECT_SECONDS),
            allow_redirects=False,
        ) as response:
            return response, await response.text(errors="replace")

    async def _renew(self, refused: _Session | None) -> None:
        """Log in again, unless another request has done so since the session was refused."""
        async with self._login:
            if self._session is not refused:
                return
            try:
                connection = await self._log_in()
                tls = connection.as_ssl_context()
            except (CredentialsError, OSError) as error:
                if refused is None:
                    raise
                # Credentials may become available soon, so the next request logs in again.
                raise RestError(401, f"the API server refused the credentials, and new ones failed: {error}") from None
            client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=tls, limit=0),
                headers=connection.as_http_headers() | _HEADERS,
                proxy=connection.proxy_url,
                trust_env=connection.trust_env,
                trace_configs=self._trace_configs,
            )
            self._session = _Session(client, connection.server.rstrip("/"))


async def _lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Yields the complete lines of an answer's body, without a truncated last line."""
    begun = bytearray()
    async for chunk in response.content.iter_any():
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            yield bytes(begun) + end
            begun.clear()
        begun += rest
        if len(begun) > _LONGEST_EVENT:
            raise aiohttp.ClientPayloadError("a watch event is too long")


def _object(text: str | bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        raise aiohttp.ClientPayloadError("the answer is not JSON") from None
    if not isinstance(found, dict):
        raise aiohttp.ClientPayloadError("the answer is not a JSON object")
    return found


def _refusal(response: aiohttp.ClientResponse, text: str) -> RestError:
    return RestError(response.status, _message(text) or response.reason or "", _retry_after(response))


def _message(text: str) -> str:
    """Returns the message of a ``Status`` object, or the beginning of any other text."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()[:200]


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    try:
        return max(0.0, float(response.headers["Retry-After"]))
    except (KeyError, ValueError):
        return None
