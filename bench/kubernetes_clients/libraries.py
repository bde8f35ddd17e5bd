"""The clients, each as what reads one small object again and again from the cluster that KUBECONFIG names.

Whatever a client needs is imported where it is used: a process must not pay for the others.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

AT_ONCE = 8
NAMESPACE, NAME = "default", "small"

Read = Callable[[], Awaitable[object]]
Client = Callable[[], AbstractAsyncContextManager[Read]]


@asynccontextmanager
async def ours() -> AsyncIterator[Read]:
    """What the operator has itself, on kopf's HTTP client."""
    from tenantzone_operator.kube.connection import Connection
    from tenantzone_operator.kube.rest import Rest

    async with Rest(Connection(os.environ["KUBECONFIG"]).for_kopf) as rest:
        yield lambda: rest.call("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}")


@asynccontextmanager
async def official() -> AsyncIterator[Read]:
    """The official client, which waits for answers: in threads, as a process on asyncio would have to call it."""
    from kubernetes import client, config

    config.load_kube_config()
    api, loop = client.CoreV1Api(), asyncio.get_running_loop()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        yield lambda: loop.run_in_executor(threads, api.read_namespaced_config_map, NAME, NAMESPACE)


@asynccontextmanager
async def official_asyncio() -> AsyncIterator[Read]:
    """The official client's twin."""
    from kubernetes_asyncio import client, config

    await config.load_kube_config()
    async with client.ApiClient() as api:
        core = client.CoreV1Api(api)
        yield lambda: core.read_namespaced_config_map(NAME, NAMESPACE)


@asynccontextmanager
async def lightkube() -> AsyncIterator[Read]:
    """A small client on httpx, with generated models."""
    from lightkube import AsyncClient
    from lightkube.resources.core_v1 import ConfigMap

    client = AsyncClient()
    yield lambda: client.get(ConfigMap, NAME, namespace=NAMESPACE)


@asynccontextmanager
async def kr8s() -> AsyncIterator[Read]:
    """A client in kubectl's terms, on httpx."""
    import kr8s.asyncio

    api = await kr8s.asyncio.api()

    async def read() -> object:
        async with api.call_api("GET", namespace=NAMESPACE, url=f"configmaps/{NAME}") as answer:
            return answer.json()

    yield read


@dataclass(frozen=True, slots=True)
class Library:
    """A client, and what it is made of."""

    distribution: str
    """Without which it is not there."""
    modules: tuple[str, ...]
    """What an operator that uses it imports."""
    connect: Client


CLIENTS = {
    "ours": Library("kopf", ("tenantzone_operator.kube.connection", "tenantzone_operator.kube.rest"), ours),
    "kubernetes": Library("kubernetes", ("kubernetes.client", "kubernetes.config"), official),
    "kubernetes_asyncio": Library(
        "kubernetes_asyncio", ("kubernetes_asyncio.client", "kubernetes_asyncio.config"), official_asyncio
    ),
    "lightkube": Library("lightkube", ("lightkube", "lightkube.resources.core_v1"), lightkube),
    "kr8s": Library("kr8s", ("kr8s.asyncio",), kr8s),
}


def hide_what_kopf_finds(client: str) -> None:
    """Make kopf import no client but this one: the operator's image has none, and kopf imports each that it finds."""
    for name in {"kubernetes", "kubernetes_asyncio"} - {client}:
        sys.modules[name] = None  # type: ignore[assignment]
