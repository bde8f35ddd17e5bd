"""Makes and deletes namespaces where no controller empties them, over one connection.

kubectl would start six processes for each namespace, and a run of all tests makes hundreds of them.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPSConnection
from ssl import SSLContext
from typing import Any
from urllib.parse import urlsplit

from hack.controlplane.cluster import ClusterError

_TIMEOUT_SECONDS = 60.0
_RETRY_SECONDS = 0.2
_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_EMPTIED_BY = {"list", "deletecollection"}
"""The verbs that a kind must allow; other kinds, such as reviews, have no objects."""


def create(server: str, context: SSLContext, name: str) -> None:
    """Make a namespace.

    Raises:
        ClusterError: there is one of this name, or it is not a name.
    """
    with _connection(server, context) as api:
        api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})


def delete(server: str, context: SSLContext, name: str) -> None:
    """Delete a namespace and everything in it, including objects with finalizers.

    Args:
        server: the address of kube-apiserver.
        context: has an administrator's certificate.
        name: of the namespace.

    Raises:
        ClusterError: there is no such namespace.
    """
    with _connection(server, context) as api:
        api.ask("DELETE", f"/api/v1/namespaces/{name}")
        # A namespace that is being deleted gets no new objects, and most kinds have none in it.
        kinds = [f"{prefix}/namespaces/{name}/{plural}" for prefix, plural in api.kinds()]
        kinds = [kind for kind in kinds if api.list(kind)]
        for kind in kinds:
            api.ask("DELETE", kind, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        for kind in kinds:
            for left in api.list(kind):
                # The owner of a finalizer may be gone, as a test's operator is.
                api.ask("PATCH", f"{kind}/{left['metadata']['name']}", {"metadata": {"finalizers": None}}, gone=True)
        api.ask("PUT", f"/api/v1/namespaces/{name}/finalize", {"metadata": {"name": name}, "spec": {"finalizers": []}})


class _Api:
    def __init__(self, connection: HTTPSConnection) -> None:
        self._connection = connection

    def kinds(self) -> Iterator[tuple[str, str]]:
        """The path and the plural of each kind that has objects in namespaces."""
        for root in ("/api", "/apis"):
            for group in self.ask("GET", root, accept=_DISCOVERY)["items"]:
                group_name = group["metadata"].get("name", "")
                # The first version is the preferred one, and all have the same objects.
                version = group["versions"][0]
                prefix = "/".join(filter(None, (root, group_name, version["version"])))
                for kind in version["resources"]:
                    if kind["scope"] == "Namespaced" and set(kind["verbs"]) >= _EMPTIED_BY:
                        yield prefix, kind["resource"]

    def list(self, kind: str) -> list[dict[str, Any]]:
        """Returns the metadata of each object of a kind in a namespace.

        Args:
            kind: the path of the collection, with the namespace.
        """
        return self.ask("GET", kind, accept=_METADATA)["items"] or []

    def ask(self, method: str, path: str, body: object = None, *, accept: str = _JSON, gone: bool = False) -> Any:
        """The answer, decoded.

        Args:
            method: of HTTP.
            path: with its leading slash.
            body: sent as JSON; None: no body.
            accept: the type of the answer.
            gone: whether the requested object may not exist any more.
        """
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else _JSON
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while True:
            self._connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = self._connection.getresponse()
            text = answer.read().decode()
            if answer.status != HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() > deadline:
                break
            # The kind was defined a moment ago, and the API server cannot list its objects yet.
            time.sleep(_RETRY_SECONDS)
        if answer.status >= 300 and not (gone and answer.status == 404):
            raise ClusterError(f"{method} {path}: {answer.status} {text}")
        return json.loads(text)


@contextmanager
def _connection(server: str, context: SSLContext) -> Iterator[_Api]:
    connection = HTTPSConnection(urlsplit(server).netloc, context=context, timeout=_TIMEOUT_SECONDS)
    try:
        yield _Api(connection)
    finally:
        connection.close()
