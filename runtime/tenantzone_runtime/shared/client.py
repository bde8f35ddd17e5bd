"""A client of the KV-cache manager, over HTTP, for threads that may wait: each call has its deadline.

HTTP and not gRPC: of a prefix of 1,000 blocks, the manager's own bench has the answer over HTTP in two thirds of the
time.
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

from tenantzone_contract.renewed import Renewed
from tenantzone_contract.tls import DEFAULT_TLS, TlsError, TlsFiles, client_context
from tenantzone_runtime.shared.answers import (
    CacheLocations,
    Instances,
    Refusal,
    Removed,
    StartedWrite,
    WriteEndings,
)
from tenantzone_runtime.shared.bound_socket import BoundSocket, seconds_left
from tenantzone_runtime.shared.urls import check_url

_T = TypeVar("_T")
_encode: Final = msgspec.json.Encoder().encode

MOST_KEYS: Final = 16_384
"""That a call may name."""
LONGEST_ANSWER: Final = 64 * 2**20
"""Bytes that are read of an answer. A block's location has some 300."""
_CLOSED: Final = (ConnectionError, http.client.BadStatusLine, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""What using a connection ends in that the other side has closed."""


class ManagerError(Exception):
    """The manager did not do what it was asked.

    Args:
        code: as gRPC calls it: ``NOT_FOUND``, ``FAILED_PRECONDITION`` and so on; ``UNAVAILABLE``: it does not answer.
        message: for people.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_failure(self) -> bool:
        """Whether it speaks of the manager's state, and not of what was asked."""
        return self.code in ("UNAVAILABLE", "INTERNAL", "UNAUTHENTICATED", "PERMISSION_DENIED")


class ManagerClient:
    """Asks one manager; any number of threads may, each over a connection of its own that stays open.

    Args:
        url: of its HTTP port, as ``http://kv-cache-manager:9470``.
        token: the bearer token to show, as it is when it is asked for; empty: none.
        tls: whom to believe, and what to show, over https; read again for new connections when it has changed.

    Raises:
        ValueError: the URL can't be used.
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
        """Have an instance; harmless if it is there already, as it is."""
        self._call("RegisterInstance", {"instance": instance}, seconds, Any)

    def get_cache_location(self, instance: str, keys: Sequence[bytes], seconds: float) -> CacheLocations:
        """How much of a prompt from its beginning can be read, and where: of its first ``MOST_KEYS`` blocks."""
        asked = {"instance_id": instance, "block_keys": keys[:MOST_KEYS], "query_type": "prefix"}
        return self._call("GetCacheLocation", asked, seconds, CacheLocations)

    def get_hit(
        self, instance: str, keys: Sequence[bytes], groups: Sequence[tuple[bytes, int]], seconds: float
    ) -> CacheLocations:
        """How much of a prompt from its beginning can be read of all groups of a model, and where.

        Args:
            instance: whose.
            keys: of the prompt's blocks. Only the first ``MOST_KEYS`` are looked up.
            groups: what each adds to the keys, and how many of the last blocks it needs; 0: all.
            seconds: that it may take.
        """
        told = [{"key_suffix": suffix, "window": window} for suffix, window in groups]
        asked = {"instance_id": instance, "block_keys": keys[:MOST_KEYS], "query_type": "groups", "groups": told}
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
        """Have room for the blocks from ``first`` on of a prompt, and learn where to write them.

        Args:
            instance: whose.
            keys: of the blocks.
            first: the first that is to be written.
            write_seconds: after which the writer is taken for dead.
            seconds: that the call may take.
            parents: of each, the index of the block before it, or -1, and all is written or nothing; without: each
                follows the one before it.
        """
        asked: dict[str, Any] = {
            "instance_id": instance,
            "block_keys": keys,
            "first_block": first,
            "write_timeout_seconds": write_seconds,
        }
        if parents:
            # A manager from before there were such fields refuses them.
            asked |= {"parents": parents, "whole": True}
        return self._call("StartWriteCache", asked, seconds, StartedWrite)

    def finish_write_cache(
        self, instance: str, write_id: str, keys: Sequence[bytes], failed: Sequence[int], seconds: float
    ) -> WriteEndings:
        """Have blocks served that were written; those whose indices are ``failed`` go. To repeat it is harmless."""
        asked = {"instance_id": instance, "write_id": write_id, "block_keys": keys, "failed_blocks": failed}
        return self._call("FinishWriteCache", asked, seconds, WriteEndings)

    def remove_cache(self, instance: str, keys: Sequence[bytes], seconds: float) -> Removed:
        """Have blocks served no more."""
        return self._call("RemoveCache", {"instance_id": instance, "block_keys": keys}, seconds, Removed)

    def trim_cache(self, instance: str, unused_for_seconds: float, seconds: float) -> Removed:
        """Have all blocks of an instance served no more that nobody has used for so long."""
        asked = {"instance_id": instance, "unused_for_seconds": unused_for_seconds}
        return self._call("TrimCache", asked, seconds, Removed)

    def list_instances(self, seconds: float) -> Instances:
        """All instances that this caller may see, with what they hold."""
        return self._call("ListInstances", {}, seconds, Instances)

    def unregister_instance(self, instance: str, seconds: float) -> None:
        """Have an empty instance go."""
        self._call("UnregisterInstance", {"instance_id": instance}, seconds, Any)

    def _call(self, name: str, asked: dict[str, Any], seconds: float, kind: type[_T]) -> _T:
        """Ask, within so many seconds.

        Raises:
            ManagerError: it was not done.
        """
        try:
            status, body = self._post(f"{self._path}/v1/{name}", _encode(asked), time.monotonic() + seconds)
        except TlsError as error:
            raise ManagerError("UNAVAILABLE", f"the KV-cache manager can't be asked: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            # A certificate that is not believed is an OSError, and a ValueError, too.
            raise ManagerError("UNAVAILABLE", f"the KV-cache manager does not answer: {error!r}") from error
        except ValueError as error:
            raise ManagerError("UNAUTHENTICATED", f"the token can't be shown to the manager: {error}") from error
        try:
            if status == http.client.OK:
                return msgspec.json.decode(body, type=kind)
            told = msgspec.json.decode(body, type=Refusal).error
        except msgspec.DecodeError as error:
            raise ManagerError("INTERNAL", f"the KV-cache manager answered {status}: {error}") from error
        raise ManagerError(told.code, told.message)

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
                # The manager has closed what stood open since the last call: it has not seen this one.
            except BaseException:
                self.forget_connection()
                raise

    def _open(self, connection: http.client.HTTPConnection, deadline: float) -> None:
        """Have the connection open, and all that it does until the next call over by the deadline."""
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
        """Close the connection of this thread; the next call opens another."""
        known = getattr(self._of_thread, "connection", None)
        self._of_thread.connection = None
        if isinstance(known, http.client.HTTPConnection):
            with suppress(OSError):
                known.close()


def _read(answer: http.client.HTTPResponse) -> bytes:
    """The body, all of it, so that the connection can be used again."""
    body = bytearray()
    while part := answer.read1(2**20):
        body += part
        if len(body) > LONGEST_ANSWER:
            raise http.client.HTTPException(f"its answer is longer than {LONGEST_ANSWER:,} bytes")
    answer.close()
    return bytes(body)
