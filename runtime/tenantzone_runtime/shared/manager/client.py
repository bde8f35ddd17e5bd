"""An HTTP client of the KV-cache manager, for threads that may block. Each call has a deadline.

It uses HTTP instead of gRPC because that is faster: in the manager's benchmark, a query for a prefix of 1,000 blocks
takes only two thirds of the time.
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
"""Maximum size of an answer in bytes. The location of a block takes about 300 bytes."""
_CLOSED: Final = (ConnectionError, http.client.BadStatusLine, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Errors that occur if the other side has closed the connection."""


class ManagerError(Exception):
    """A call to the manager failed.

    Args:
        code: name of the gRPC status code, such as ``NOT_FOUND``; ``UNAVAILABLE`` if the manager does not answer.
        message: human-readable message.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_failure(self) -> bool:
        """Whether the error is due to the state of the manager or the access to it, and not due to this call."""
        return self.code in ("UNAVAILABLE", "INTERNAL", "UNAUTHENTICATED", "PERMISSION_DENIED")


class ManagerClient:
    """Calls one manager. It is thread-safe: each thread has its own connection, which is kept alive.

    Args:
        url: URL of the manager's HTTP port, such as ``http://kv-cache-manager:9470``.
        token: returns the current bearer token to send; empty for none.
        tls: trusted CA certificates and client certificate for https. They are reloaded for new connections when the
            files have changed.

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
        """Register an instance; does nothing if it is already registered with the same properties."""
        self._call("RegisterInstance", {"instance": instance}, seconds, Any)

    def get_cache_location(self, instance: str, keys: Sequence[bytes], seconds: float) -> CacheLocations:
        """Returns the locations of the readable beginning of a prompt, within its first ``MOST_KEYS`` blocks."""
        asked = {"instance_id": instance, "block_keys": keys[:MOST_KEYS], "query_type": "prefix"}
        return self._call("GetCacheLocation", asked, seconds, CacheLocations)

    def get_hit(
        self, instance: str, keys: Sequence[bytes], groups: Sequence[tuple[bytes, int]], seconds: float
    ) -> CacheLocations:
        """Returns the beginning of a prompt that is readable for all groups of a model, and its locations.

        Args:
            instance: name of the instance.
            keys: keys of the prompt's blocks. Only the first ``MOST_KEYS`` are looked up.
            groups: for each group, the suffix of its keys, and the number of last blocks that it needs (0 for all).
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
        """Reserve room for the blocks of a prompt from ``first`` on, and return the locations to write to.

        Args:
            instance: name of the instance.
            keys: keys of the blocks.
            first: index of the first block to write.
            write_seconds: seconds after which the manager considers the writer dead.
            seconds: timeout of the call in seconds.
            parents: for each block, the index of its preceding block, or -1 for none; then either all blocks are
                written or none. If ``parents`` is empty, each block follows the previous one.
        """
        asked: dict[str, Any] = {
            "instance_id": instance,
            "block_keys": keys,
            "first_block": first,
            "write_timeout_seconds": write_seconds,
        }
        if parents:
            # Send these fields only if they are needed, because older managers refuse unknown fields.
            asked |= {"parents": parents, "whole": True}
        return self._call("StartWriteCache", asked, seconds, StartedWrite)

    def finish_write_cache(
        self, instance: str, write_id: str, keys: Sequence[bytes], failed: Sequence[int], seconds: float
    ) -> WriteEndings:
        """Make written blocks readable, and remove blocks with indices in ``failed``. The call is idempotent."""
        asked = {"instance_id": instance, "write_id": write_id, "block_keys": keys, "failed_blocks": failed}
        return self._call("FinishWriteCache", asked, seconds, WriteEndings)

    def remove_cache(self, instance: str, keys: Sequence[bytes], seconds: float) -> Removed:
        """Remove blocks, so that they can't be found any more."""
        return self._call("RemoveCache", {"instance_id": instance, "block_keys": keys}, seconds, Removed)

    def trim_cache(self, instance: str, unused_for_seconds: float, seconds: float) -> Removed:
        """Remove all blocks of an instance that have been unused for ``unused_for_seconds``."""
        asked = {"instance_id": instance, "unused_for_seconds": unused_for_seconds}
        return self._call("TrimCache", asked, seconds, Removed)

    def list_instances(self, seconds: float) -> Instances:
        """Returns all instances that the caller may see, with their usage."""
        return self._call("ListInstances", {}, seconds, Instances)

    def unregister_instance(self, instance: str, seconds: float) -> None:
        """Remove an empty instance."""
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
            # This clause precedes ValueError, because the error of an untrusted certificate is both.
            raise ManagerError("UNAVAILABLE", f"the KV-cache manager does not answer: {error!r}") from error
        except ValueError as error:
            raise ManagerError("UNAUTHENTICATED", f"the token for the manager can't be sent: {error}") from error
        try:
            if status == http.client.OK:
                return msgspec.json.decode(body, type=kind)
            refusal = msgspec.json.decode(body, type=Refusal).error
        except msgspec.DecodeError as error:
            raise ManagerError("INTERNAL", f"the KV-cache manager answered {status}: {error}") from error
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
                # Retry: the manager has closed a connection from an earlier call, so it has not received this call.
            except BaseException:
                self.forget_connection()
                raise

    def _open(self, connection: http.client.HTTPConnection, deadline: float) -> None:
        """Open the connection if necessary, and set the deadline of its operations."""
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
        """Close this thread's connection; the next call opens another."""
        known = getattr(self._of_thread, "connection", None)
        self._of_thread.connection = None
        if isinstance(known, http.client.HTTPConnection):
            with suppress(OSError):
                known.close()


def _read(answer: http.client.HTTPResponse) -> bytes:
    """Returns the whole body, so that the connection can be reused."""
    body = bytearray()
    while part := answer.read1(2**20):
        body += part
        if len(body) > LONGEST_ANSWER:
            raise http.client.HTTPException(f"the answer is longer than {LONGEST_ANSWER:,} bytes")
    answer.close()
    return bytes(body)
