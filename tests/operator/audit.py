"""The API server's own record of the requests of service accounts."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_READS = ("get", "list", "watch")


@dataclass(frozen=True)
class Request:
    """One request and the answer to it."""

    user: str
    verb: str
    group: str
    resource: str
    """The resource with its subresource, as in RBAC: ``tenantzones/status``."""
    namespace: str
    name: str
    code: int
    query: str
    """The URI's part after the path."""
    received: str
    """The time of the request, by the API server's clock; sorts by time."""

    @property
    def is_write(self) -> bool:
        return self.verb not in _READS

    @property
    def created(self) -> bool:
        """Whether it created an object."""
        return self.code == 201


class AuditLog:
    """The requests that the API server receives from now on.

    A watch of an operator that has ended is written later, when the API server notices: the log's end is not enough.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = path.stat().st_size if path.exists() else 0
        self._since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def requests(self, user: str = "") -> list[Request]:
        """Requests of one user, or of all, in the order in which they were answered."""
        return [request for request in self._read() if user in ("", request.user)]

    def writes(self, user: str = "") -> list[Request]:
        """Writes, except those to the Lease, which is written all the time."""
        return [request for request in self.requests(user) if request.is_write and request.resource != "leases"]

    def _read(self) -> Iterator[Request]:
        with self._path.open() as file:
            file.seek(self._start)
            for line in file:
                # The last line may be incomplete.
                if line.endswith("\n"):
                    request = _request(json.loads(line))
                    if request.received >= self._since:
                        yield request


def _request(event: dict[str, Any]) -> Request:
    about = event.get("objectRef", {"resource": event["requestURI"]})
    return Request(
        user=event["user"]["username"],
        verb=event["verb"],
        group=about.get("apiGroup", ""),
        resource="/".join(filter(None, (about["resource"], about.get("subresource")))),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        query=event["requestURI"].partition("?")[2],
        received=event["requestReceivedTimestamp"],
    )
