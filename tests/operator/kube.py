"""The API server for the operator's tests: plain HTTP, to check a condition many times a second."""

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from hack.controlplane import Cluster
from tenantzone_contract.zone_config.config import ConfigError

T = TypeVar("T")
TIMEOUT_SECONDS = 90.0
_CALL_SECONDS = 60.0
"""The API server's own limit for a call: on busy cores, deleting a collection takes more than ten seconds."""
_POLL_SECONDS = 0.05


class Kube:
    """Objects by their paths, through kubectl's proxy, which knows every way to authenticate."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str) -> dict[str, Any] | None:
        """An object, or None if it does not exist."""
        try:
            return self.call("GET", path)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def text(self, path: str, **headers: str) -> str:
        request = urllib.request.Request(self._server + path, headers=headers)
        with self._opener.open(request, timeout=_CALL_SECONDS) as answer:
            return answer.read().decode()

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> dict[str, Any]:
        request = urllib.request.Request(self._server + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", content_type)
        with self._opener.open(request, timeout=_CALL_SECONDS) as answer:
            return json.load(answer)

    def merge(self, path: str, body: Any) -> dict[str, Any]:
        return self.call("PATCH", path, body, "application/merge-patch+json")


@contextmanager
def proxied(cluster: Cluster) -> Iterator[Kube]:
    """The cluster as its administrator sees it, for as long as the block runs."""
    command = [cluster.kubectl_program, "--kubeconfig", cluster.kubeconfig, "proxy", "--port=0"]
    proxy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert proxy.stdout is not None
        # Starting to serve on 127.0.0.1:12345
        yield Kube(f"http://{proxy.stdout.readline().split()[-1]}")
    finally:
        proxy.terminate()
        proxy.wait()


def eventually(look: Callable[[], T], *, timeout: float = TIMEOUT_SECONDS) -> T:
    """Calls `look` until its result is true, and returns that. Waits for missing objects, and for the API server
    itself.

    Raises:
        AssertionError: it did not become true; the message has the last result.
    """
    deadline = time.monotonic() + timeout
    seen: object = None
    while time.monotonic() < deadline:
        try:
            found = look()
        except (OSError, AssertionError, KeyError, ConfigError) as error:
            seen = error
        else:
            if found:
                return found
            seen = found
        time.sleep(_POLL_SECONDS)
    raise AssertionError(f"did not happen within {timeout:.0f} s; seen last: {seen!r}")
