"""A client of the KV-cache manager's control plane over HTTP; the server is ``tenantzone_manager/server``."""

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from tenantzone_contract.keys.renewed import Renewed
from tenantzone_contract.keys.tls import DEFAULT_TLS, TlsError, TlsFiles, client_context
from tenantzone_contract.text import printable
from tenantzone_operator.cache_manager.answers import LONGEST_MESSAGE, check_answer

TIMEOUT_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 3.0
MAX_ANSWER_BYTES: Final = 32 * 2**20
"""Maximum size of an answer in bytes. The list of instances is the longest answer, at about 400 bytes per instance."""
_NOT_OUR_FAULT: Final = ("UNAUTHENTICATED", "PERMISSION_DENIED", "UNAVAILABLE", "INTERNAL")
"""Error codes with causes other than the request's content, so that the same request may succeed later."""


class ManagerUnavailable(Exception):
    """The manager does not answer, or can't handle any request now."""


class ManagerRefused(Exception):
    """The manager has refused a request; the message says what to change."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_missing(self) -> bool:
        """Whether the object that the request names does not exist."""
        return self.code == "NOT_FOUND"


@dataclass(frozen=True, slots=True)
class ManagerAddress:
    """The manager's address, and the operator's credentials for it."""

    url: str
    token_file: Path | None
    """File with the token, which is read for each request because kubelet rotates it; None to send no token."""
    tls: TlsFiles = DEFAULT_TLS
    """The trusted CAs and the client certificate, if the URL begins with https."""


class ManagerClient:
    """A session with the manager, used as a context manager.

    Args:
        address: the manager's address.
        trace_configs: called before each request is sent; may raise an exception to prevent the request.
    """

    def __init__(self, address: ManagerAddress, *, trace_configs: Sequence[aiohttp.TraceConfig] = ()) -> None:
        self.address = address
        self._trace_configs = list(trace_configs)
        self._session: aiohttp.ClientSession | None = None
        self._tls = Renewed(address.tls.paths, lambda: client_context(address.tls), about="TLS to the KV-cache manager")

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS, sock_connect=_CONNECT_SECONDS)
        self._session = aiohttp.ClientSession(
            timeout=timeout,
            trace_configs=self._trace_configs,
            # Refuse compression, because a few compressed bytes could expand without limit.
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(self, name: str, /, **fields: Any) -> dict[str, Any]:
        """Make a call of the manager's API, and return its answer.

        Raises:
            ManagerUnavailable: there is no valid answer, or the manager can't handle any request now.
            ManagerRefused: the manager refuses this request.
        """
        headers, tls = await self._headers(), await self._context()
        try:
            try:
                status, body = await self._post(name, fields, headers, tls)
            except aiohttp.ServerDisconnectedError:
                # The manager closed an idle connection, for example when it restarted. Calls are idempotent, so retry.
                status, body = await self._post(name, fields, headers, tls)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ManagerUnavailable(f"{self.address.url}: {str(error) or type(error).__name__}") from error
        if status == 200:
            try:
                check_answer(name, body)
            except ValueError as error:
                message = f"{self.address.url} does not answer like a KV-cache manager: {name}: {error}"
                raise ManagerUnavailable(message) from error
            return body
        refusal = body.get("error")
        code, words = ("", "") if not isinstance(refusal, dict) else (refusal.get("code"), refusal.get("message"))
        message = printable(str(words or ""), LONGEST_MESSAGE)
        if not code or code in _NOT_OUR_FAULT:
            raise ManagerUnavailable(f"{self.address.url}: {message or f'status {status}'}")
        raise ManagerRefused(str(code), message)

    async def _post(
        self, name: str, fields: Any, headers: Mapping[str, str], tls: ssl.SSLContext | bool
    ) -> tuple[int, dict[str, Any]]:
        assert self._session is not None, "use ManagerClient as a context manager"
        url = f"{self.address.url.rstrip('/')}/v1/{name}"
        # Do not follow redirects, because a redirect could send the token to another server.
        async with self._session.post(url, json=fields, headers=headers, ssl=tls, allow_redirects=False) as response:
            return response.status, await _read(response)

    async def _context(self) -> ssl.SSLContext | bool:
        """Returns the TLS context of the next connection, or True for aiohttp's default if no TLS files are given."""
        if not self.address.tls.paths:
            return True
        try:
            return await asyncio.to_thread(self._tls.newest)
        except TlsError as error:
            raise ManagerUnavailable(f"no TLS connection to {self.address.url}: {error}") from error

    async def _headers(self) -> dict[str, str]:
        if self.address.token_file is None:
            return {}
        try:
            token = await asyncio.to_thread(self.address.token_file.read_text)
        except (OSError, UnicodeDecodeError) as error:
            raise ManagerUnavailable(f"no token for the KV-cache manager: {error}") from error
        if not token.strip() or len(token.split()) > 1:
            raise ManagerUnavailable(
                f"no token for the KV-cache manager: {self.address.token_file} does not contain exactly one token"
            )
        return {"Authorization": f"Bearer {token.strip()}"}


async def _read(response: aiohttp.ClientResponse) -> dict[str, Any]:
    text = bytearray()
    async for part in response.content.iter_any():
        text += part
        if len(text) > MAX_ANSWER_BYTES:
            raise aiohttp.ClientPayloadError(f"the answer exceeds the maximum of {MAX_ANSWER_BYTES:,} bytes")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise aiohttp.ClientPayloadError(f"status {response.status}, and the answer is not a JSON object")
    return body
