"""An HTTP client of the KV-cache manager, for threads that may block. Each call has a deadline.

The client uses HTTP instead of gRPC, because HTTP is faster: in the manager's benchmark, a query for a prefix of 1,000
blocks takes only two thirds of the time.
"""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

import msgspec

from tenantzone_contract.keys.renewed import Renewed
from tenantzone_contract.keys.tls import DEFAULT_TLS, TlsError, TlsFiles, client_context
from tenantzone_runtime.shared.manager.answers import (
    CacheLocations,
    Instances,
    Refusal,
    Removed,
    StartedWrite,
    WriteEndings,
)
from tenantzone_runtime.shared.manager.bound_socket import BoundSocket, seconds_left
from tenantzone_runtime.shared.manager.urls import check_url

_T = TypeVar("_T")
_encode: Final = msgspec.json.Encoder().encode

MOST_KEYS: Final = 16_384
"""Maximum number of keys in a call."""
LONGEST_ANSWER: Final = 64 * 2**20
"""Maximum size of an answer in bytes. Each location in an answer takes about 300 bytes."""
_CLOSED: Final = (ConnectionError, http.client.BadStatusLine, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Errors that occur if the manager has closed the connection."""


class ManagerError(Exception):
    """A call to the manager failed.

    Args:
        code: name of a gRPC status code, such as ``NOT_FOUND``; ``UNAVAILABLE`` if the manager does not answer.
        message: the error message.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_failure(self) -> bool:
        """Whether all other calls would fail now, too, because of the manager's state or denied access."""
        return self.code in ("UNAVAILABLE", "INTERNAL", "UNAUTHENTICATED", "PERMISSION_DENIED")


class ManagerClient:
    """Calls one manager. The client is thread-safe, because each thread has its own connection, which is kept alive.

    The methods raise `ManagerError` if the call fails. Their argument ``seconds`` is the call's timeout.

    Args:
        url: URL of the manager's HTTP port, such as ``http://kv-cache-manager:9470``.
        token: returns the current bearer token to send; empty for none.
        tls: trusted CA certificates and client certificate for https. If the files change, new connections use the new
            certificates.

    Raises:
        ValueError: the URL is invalid.
    """

    def __init__(self, url: str, token: Callable[[], str] = str, tls: TlsFiles = DEFAULT_TLS) -> None:
        parts = check_url(url)
        assert parts.hostname is not None
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")
        self._tls = None
        if parts.scheme == "https":
            self._tls = Renewed(tls.paths, lambda: client_context(tls), about="TLS to the KV-cache manager")
        self._token = token
        self._of_thread = threading.local()

    def register_instance(self, instance: dict[str, Any], seconds: float) -> None:
        """Register an instance. Does nothing if the instance is already registered with the same properties."""
        self._call("RegisterInstance", {"instance": instance}, seconds, Any)

    def get_cache_location(self, instance: str, keys: Sequence[bytes], seconds: float) -> CacheLocations:
        """Returns the locations of a prompt's blocks, up to but not including the first block that can't be read.

        Only the prompt's first ``MOST_KEYS`` blocks are looked up.
        """
        asked = {"instance_id": instance, "block_keys": keys[:MOST_KEYS], "query_type": "prefix"}
        return self._call("GetCacheLocation", asked, seconds, CacheLocations)

    def get_hit(
        self, instance: str, keys: Sequence[bytes], groups: Sequence[tuple[bytes, int]], seconds: float
    ) -> CacheLocations:
        """Returns the longest beginning of a prompt that can be read for all KV cache groups, and its locations.

        Args:
            instance: name of the instance.
            keys: keys of the prompt's blocks. Only the first ``MOST_KEYS`` are looked up.
            groups: for each group, the suffix that its keys have, and the number of last blocks that a hit needs of the
                group (0 if a hit needs all blocks).
            seconds: timeout of the call in seconds.
        """
        named = [{"key_suffix": suffix, "window": window} for suffix, window in groups]
        asked = {"instance_id": instance, "block_keys": keys[:MOST_KEYS], "query_type": "groups", "groups": named}
        return self._call("GetCacheLocation", asked, seconds, CacheLocations)

    def start_write_cache(
        self,
        instance: str,
        keys: Sequence[bytes],
        first: int,
        write_seconds: float,
        seconds: float,
        parents: Sequence[int] = (),
    ) -> StartedWrite:
        """Reserve room for the blocks of a prompt, beginning with index ``first``. Returns the locations to write to.

        Args:
            instance: name of the instance.
            keys: keys of the prompt's blocks from the beginning.
            first: index of the first block to write.
            write_seconds: seconds after which the manager considers the writer dead.
            seconds: timeout of the call in seconds.
            parents: for each block, the index of the preceding block, or -1 for none. If given, the manager reserves
                room for either all blocks or none. If empty, each block follows the previous block in ``keys``.
        """
        asked: dict[str, Any] = {
            "instance_id": instance,
            "block_keys": keys,
            "first_block": first,
            "write_timeout_seconds": write_seconds,
        }
        if parents:
            asked |= {"parents": parents, "whole": True}
        return self._call("StartWriteCache", asked, seconds, StartedWrite)

    def finish_write_cache(
        self, instance: str, write_id: str, keys: Sequence[bytes], failed: Sequence[int], seconds: float
    ) -> WriteEndings:
        """Make written blocks readable, except blocks whose indices are in ``failed``: these are removed.

        The call is idempotent.
        """
        asked = {"instance_id": instance, "write_id": write_id, "block_keys": keys, "failed_blocks": failed}
        return self._call("FinishWriteCache", asked, seconds, WriteEndings)

    def remove_cache(self, instance: str, keys: Sequence[bytes], seconds: float) -> Removed:
        """Remove the blocks with these keys from an instance. After the call, they can't be found any more."""
        return self._call("RemoveCache", {"instance_id": instance, "block_keys": keys}, seconds, Removed)

    def trim_cache(self, instance: str, unused_for_seconds: float, seconds: float) -> Removed:
        """Remove all blocks of an instance that have been unused for ``unused_for_seconds``."""
        asked = {"instance_id": instance, "unused_for_seconds": unused_for_seconds}
        return self._call("TrimCache", asked, seconds, Removed)

    def list_instances(self, seconds: float) -> Instances:
        """Returns all instances that the caller may see, with their usage."""
        return self._call("ListInstances", {}, seconds, Instances)

    def unregister_instance(self, instance: str, seconds: float) -> None:
        """Remove an instance, which must have no blocks."""
        self._call("UnregisterInstance", {"instance_id": instance}, seconds, Any)

    def _call(self, name: str, asked: dict[str, Any], seconds: float, kind: type[_T]) -> _T:
        """Make a call with a timeout in seconds.

        Raises:
            ManagerError: the call failed.
        """
        try:
            status, body = self._post(f"{self._path}/v1/{name}", _encode(asked), time.monotonic() + seconds)
        except TlsError as error:
            raise ManagerError("UNAVAILABLE", f"the KV-cache manager can't be called: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            # Keep this clause before ValueError: the error for an untrusted certificate is an OSError and a ValueError.
            raise ManagerError("UNAVAILABLE", f"the KV-cache manager does not answer: {error!r}") from error
        except ValueError as error:
            raise ManagerError("UNAUTHENTICATED", f"the token for the manager can't be sent: {error}") from error
        try:
            if status == http.client.OK:
                return msgspec.json.decode(body, type=kind)
            refusal = msgspec.json.decode(body, type=Refusal).error
        except msgspec.DecodeError as error:
            raise ManagerError(
                "INTERNAL", f"the KV-cache manager answered with status {status} and an unreadable body: {error}"
            ) from error
        raise ManagerError(refusal.code, refusal.message)

    def _post(self, path: str, body: bytes, deadline: float) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        if token := self._token():
            headers["Authorization"] = f"Bearer {token}"
        while True:
            connection, is_new = self._connection()
            try:
                self._open(connection, deadline)
                connection.request("POST", path, body, headers)
                answer = connection.getresponse()
                return answer.status, _read(answer)
            except _CLOSED:
                self.forget_connection()
                if is_new:
                    raise
                # Retry, because the manager closed the connection of an earlier call, and has not received this call.
            except BaseException:
                self.forget_connection()
                raise

    def _open(self, connection: http.client.HTTPConnection, deadline: float) -> None:
        """Open the connection if it is not open, and set the deadline of its operations."""
        if connection.sock is None:
            connection.timeout = seconds_left(deadline)
            connection.connect()
            connection.sock = BoundSocket(cast(socket.socket, connection.sock))
        assert isinstance(connection.sock, BoundSocket)
        connection.sock.deadline = deadline

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        known = getattr(self._of_thread, "connection", None)
        if isinstance(known, http.client.HTTPConnection):
            return known, False
        if self._tls is None:
            made = http.client.HTTPConnection(self._host, self._port)
        else:
            made = http.client.HTTPSConnection(self._host, self._port, context=self._tls.newest())
        self._of_thread.connection = made
        return made, True

    def forget_connection(self) -> None:
        """Close this thread's connection. The next call opens a new connection."""
        known = getattr(self._of_thread, "connection", None)
        self._of_thread.connection = None
        if isinstance(known, http.client.HTTPConnection):
            with suppress(OSError):
                known.close()


def _read(answer: http.client.HTTPResponse) -> bytes:
    """Read the whole body, so that the connection can be reused.

    Raises:
        http.client.HTTPException: the body is larger than ``LONGEST_ANSWER``.
    """
    body = bytearray()
    while part := answer.read1(2**20):
        body += part
        if len(body) > LONGEST_ANSWER:
            raise http.client.HTTPException(f"the answer is longer than {LONGEST_ANSWER:,} bytes")
    answer.close()
    return bytes(body)
