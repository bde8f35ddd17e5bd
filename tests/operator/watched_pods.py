"""The pods of one namespace: as an administrator changes them, and as the watch of one pool sees them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tenantzone_operator.kube.api import Api, connected
from tenantzone_operator.kube.credentials.connection import Connection
from tenantzone_operator.kube.pod_watch import PodWatch
from tenantzone_operator.kube.resources import Pool, read_pool
from tenantzone_operator.kube.store import Store
from tenantzone_operator.logs import About
from tests.operator.fleet import pod_manifest, pod_status
from tests.operator.kube import Kube, eventually
from tests.operator.objects import body

OURS, THEIRS = {"app": "vllm"}, {"app": "other"}


class Pods:
    """The pods of a namespace: their state, an administrator's changes, and the watch's view."""

    def __init__(self, kube: Kube, namespace: str, api: Api) -> None:
        self.api = api
        self.store = Store()
        self.changes = 0
        self.key = (namespace, "demo")
        self.watch = PodWatch(self.key, self.store, api, self._count, About(logging.getLogger(__name__), {}))
        self._kube = kube
        self._path = f"/api/v1/namespaces/{namespace}/pods"

    def _count(self) -> None:
        self.changes += 1

    def add(self, *names: str, labels: dict[str, str] = OURS) -> None:
        for name in names:
            self._kube.call("POST", self._path, pod_manifest(name, labels))

    def label(self, name: str, labels: dict[str, str]) -> None:
        self._kube.merge(f"{self._path}/{name}", {"metadata": {"labels": labels}})

    def annotate(self, name: str, **annotations: str) -> None:
        self._kube.merge(f"{self._path}/{name}", {"metadata": {"annotations": annotations}})

    def set_ready(self, name: str, ip: str) -> None:
        self._kube.merge(f"{self._path}/{name}/status", pod_status(ip, ready=True))

    def delete(self, name: str) -> None:
        self._kube.call("DELETE", f"{self._path}/{name}?gracePeriodSeconds=0")

    def body(self, name: str) -> dict[str, Any]:
        found = self._kube.get(f"{self._path}/{name}")
        assert found is not None
        return found

    @property
    def known(self) -> dict[str, str]:
        """Names and addresses of the known pods."""
        return {pod.meta.name: pod.ip for pod in self.store.pods.get(self.key, ())}

    async def until(self, look: Callable[[], bool]) -> None:
        await asyncio.to_thread(eventually, look)

    async def until_known(self, names: Iterable[str]) -> None:
        await self.until(lambda: self.known.keys() == set(names))


@asynccontextmanager
async def watched_through(kubeconfig: Path, kube: Kube, namespace: str) -> AsyncIterator[Pods]:
    async with connected(Connection(str(kubeconfig)), None) as api:
        made = Pods(kube, namespace, api)
        try:
            yield made
        finally:
            made.watch.stop()


def pool(**labels: str) -> Pool:
    return read_pool(body("demo", spec={"selector": {"matchLabels": labels}}))
