"""Sends requests to the API server, and raises `ApiError` for each refused request."""

import http.client
import json
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, ParamSpec, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from tenantzone_contract.zone_config.specs import Body

P = ParamSpec("P")
T = TypeVar("T")

TIMEOUT_SECONDS = 15.0
_PAGE = 500
_ATTEMPTS = 4
_LONGEST_WAIT_SECONDS = 2.0
_LARGEST_BYTES = 2**28
"""Maximum size of a response in bytes, enough for a page of the largest objects that etcd accepts."""


class Unreachable(Exception):
    """The API server does not answer, or another kind of server answers."""


class ApiError(Exception):
    """The API server has refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    @property
    def is_forbidden(self) -> bool:
        return self.status in (401, 403)

    @property
    def is_not_found(self) -> bool:
        return self.status == 404


Outcome: TypeAlias = T | ApiError
"""The requested value, or the API server's refusal."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful response of the API server."""

    status: int
    text: bytes
    date: float | None
    """Unix time of the response by the API server's clock, in whole seconds; None if unknown."""

    def json(self) -> Any:
        """Returns the response's text parsed as JSON.

        Raises:
            Unreachable: the text is not JSON, so it does not come from an API server.
        """
        try:
            return json.loads(self.text)
        except ValueError:
            raise Unreachable(
                "the server is not a Kubernetes API server; check the context of the kubeconfig"
            ) from None


class Api:
    """A client of the API server that uses a local ``kubectl proxy``.

    Args:
        path: the path of the Unix socket on which the proxy listens.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, path: str, **query: str) -> Any:
        """Returns one object or one page of a listing.

        Raises:
            ApiError: the API server refuses the request.
            Unreachable: the API server does not answer.
        """
        return self.ask("GET", path, query).json()

    def list(self, path: str, **query: str) -> list[Body]:
        """Returns all objects of a kind, requested page by page.

        Raises:
            ApiError: the API server refuses a request.
            Unreachable: the API server does not answer.
        """
        items: list[Body] = []
        query |= {"limit": str(_PAGE)}
        while True:
            page = self.get(path, **query)
            items += page["items"]
            token = page["metadata"].get("continue")
            if not token:
                return items
            query["continue"] = token

    def review(self, kind: str, spec: Body) -> Body:
        """Request an access review, and return the review's status.

        Args:
            kind: the kind of review, for example ``SelfSubjectAccessReview``.
            spec: the review's spec.

        Raises:
            ApiError: the API server refuses the request.
            Unreachable: the API server does not answer.
        """
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        path = f"/apis/authorization.k8s.io/v1/{kind.lower()}s"
        status: Body = self.ask("POST", path, body=json.dumps(body)).json()["status"]
        return status

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: str | None = None,
        max_bytes: int = _LARGEST_BYTES,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> Answer:
        """Send a request, and return the response. Retries a few times if the API server answers with status 429.

        Raises:
            ApiError: the API server refuses the request.
            Unreachable: the API server does not answer, or the response exceeds ``max_bytes``.
        """
        target = quote(path) + (f"?{urlencode(query)}" if query else "")
        for attempt in range(_ATTEMPTS):
            sent = {"Content-Type": "application/json", **headers} if body is not None else headers
            answer = exchange(_UnixConnection(self._path), method, target, body, sent, max_bytes=max_bytes)
            if answer.status < 300:
                return answer
            refusal = _status(answer.text)
            if answer.status != 429 or attempt == _ATTEMPTS - 1:
                break
            # The API server requests a later retry, for example just after a CRD was installed.
            time.sleep(_wait_seconds(refusal))
        message = refusal.get("message") or answer.text.decode(errors="replace").strip()
        if answer.status == 404 and not refusal:
            message = "the API server lacks this kind; install the CRDs: kubectl apply --server-side -f crds/"
        if answer.status >= 500 and not refusal:
            # A response without a Status object comes from kubectl proxy, which could not reach the API server.
            raise Unreachable(message)
        raise ApiError(answer.status, message)


def exchange(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    body: str | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
    *,
    max_bytes: int,
) -> Answer:
    """Send one request, return the response whatever its status, and close the connection.

    Raises:
        Unreachable: there is no response, or the response exceeds ``max_bytes``.
    """
    try:
        connection.request(method, target, body, headers)
        response = connection.getresponse()
        text = response.read(max_bytes + 1)
        if len(text) > max_bytes:
            raise Unreachable(f"the answer exceeds the maximum of {max_bytes:,} bytes")
        return Answer(response.status, text, _seconds(response.getheader("Date")))
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(str(error) or type(error).__name__) from None
    finally:
        connection.close()


def attempt(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
    """Returns the result of a call to the API server, or the error if the API server refuses the request."""
    try:
        return call(*args, **kwargs)
    except ApiError as error:
        return error


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _status(text: bytes) -> dict[str, Any]:
    """Returns the ``Status`` object in a response; empty if the response contains no such object."""
    try:
        read = json.loads(text)
    except ValueError:
        return {}
    return read if isinstance(read, dict) and read.get("kind") == "Status" else {}


def _wait_seconds(refusal: Mapping[str, Any]) -> float:
    """Returns the seconds that a refusal asks the client to wait, within bounds: a proxy may send any value."""
    details = refusal.get("details")
    asked = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    return min(_LONGEST_WAIT_SECONDS, max(0, asked)) if isinstance(asked, int) else 1.0


def _seconds(date: str | None) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() if date is not None else None
    except ValueError:
        return None
