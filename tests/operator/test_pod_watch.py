"""One pool's pods, and no others: as they are, whatever becomes of the watch."""

import asyncio
import json
import logging
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane import Cluster
from hack.harness.proxy import BROKEN, Faults, Proxy, Refusal, error_event, proxied_for_operator
from tenantzone_operator.app import Operator as App
from tenantzone_operator.app import Options
from tenantzone_operator.kube import pod_watch
from tenantzone_operator.kube.api import Api, connected
from tenantzone_operator.kube.connection import Connection
from tenantzone_operator.kube.pod_watch import PodsUnknownError, PodWatch, list_selected
from tenantzone_operator.kube.resources import Pool, read_pool
from tenantzone_operator.kube.store import Store
from tenantzone_operator.leader.leader import Leader
from tenantzone_operator.leader.leadership import Alone
from tenantzone_operator.logs import About
from tenantzone_operator.pool.reconcile import Reconciler
from tests.operator.bad_watches import bad_watches
from tests.operator.fleet import pod_manifest, pod_status
from tests.operator.kube import Kube, eventually
from tests.operator.objects import body

pytestmark = pytest.mark.controlplane

OURS, THEIRS = {"app": "vllm"}, {"app": "other"}


@pytest.fixture(scope="module")
def proxy(operator_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with proxied_for_operator(operator_kubeconfig, tmp_path_factory.mktemp("proxy")) as made:
        yield made


class Pods:
    """Those of a namespace: as they are, as an administrator changes them, and as the watch sees them."""

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
        """Names and addresses."""
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


@pytest.fixture
async def pods(proxy: Proxy, kube: Kube, control_plane: Cluster, namespace: str) -> AsyncIterator[Pods]:
    proxy.heal()
    async with watched_through(proxy.kubeconfig, kube, namespace) as made:
        yield made
    proxy.heal()


def pool(**labels: str) -> Pool:
    return read_pool(body("demo", spec={"selector": {"matchLabels": labels}}))


async def test_only_pods_that_the_pool_selects_are_known(pods: Pods):
    pods.add("ours")
    pods.add("theirs", labels=THEIRS)
    assert not pods.watch.knows_pods_of(pool(**OURS))
    await pods.watch.follow(pool(**OURS))
    assert pods.watch.knows_pods_of(pool(**OURS))
    assert pods.known.keys() == {"ours"}
    assert pods.changes == 1

    pods.add("theirs-too", labels=THEIRS)
    pods.add("ours-too")
    await pods.until_known({"ours", "ours-too"})
    pods.delete("ours")
    await pods.until_known({"ours-too"})


async def test_a_pod_whose_labels_change_leaves_and_comes_back(pods: Pods):
    pods.add("engine-0")
    await pods.watch.follow(pool(**OURS))
    for _ in range(2):
        pods.label("engine-0", THEIRS)
        await pods.until_known(())
        pods.label("engine-0", OURS)
        await pods.until_known({"engine-0"})


async def test_what_is_not_looked_at_is_no_change(pods: Pods):
    pods.add("engine-0")
    await pods.watch.follow(pool(**OURS))
    pods.annotate("engine-0", theirs="1")
    pods.set_ready("engine-0", "10.0.0.1")
    await pods.until(lambda: pods.known == {"engine-0": "10.0.0.1"})
    assert pods.changes == 2


async def test_another_selector_is_another_watch(pods: Pods):
    pods.add("ours")
    pods.add("theirs", labels=THEIRS)
    await pods.watch.follow(pool(**OURS))
    assert not pods.watch.knows_pods_of(pool(**THEIRS))
    await pods.watch.follow(pool(**THEIRS))
    assert pods.known.keys() == {"theirs"}
    pods.add("ours-too")
    pods.add("theirs-too", labels=THEIRS)
    await pods.until_known({"theirs", "theirs-too"})


async def test_without_a_pool_there_is_no_watch(pods: Pods):
    pods.add("ours")
    await pods.watch.follow(pool(**OURS))
    await pods.watch.follow(None)
    assert pods.store.pods == {}
    assert pods.watch.knows_pods_of(None)


@pytest.mark.parametrize("labels", [{}, {"app": "no label"}])
async def test_what_no_pod_can_match_is_known_at_once(pods: Pods, proxy: Proxy, labels: dict[str, str]):
    proxy.faults = Faults(reads=BROKEN, times=1000)
    await pods.watch.follow(pool(**labels))
    assert pods.known == {}
    assert not pods.watch.is_stale
    assert await list_selected(pods.api, pool(**labels)) == []


async def test_more_pods_than_one_answer_holds_are_all_known(pods: Pods, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tenantzone_operator.kube.api._PAGE", 2)
    names = {f"engine-{number}" for number in range(5)}
    pods.add(*names)
    pods.add("theirs", labels=THEIRS)
    await pods.watch.follow(pool(**OURS))
    assert pods.known.keys() == names
    there = read_pool(body("demo", metadata={"namespace": pods.key[0]}, spec={"selector": {"matchLabels": OURS}}))
    assert {pod.meta.name for pod in await list_selected(pods.api, there)} == names


@bad_watches
async def test_watches_are_bad(pods: Pods, proxy: Proxy, faults: Callable[[], Faults]):
    pods.add("away", "back", "gone", "ready")
    await pods.watch.follow(pool(**OURS))

    proxy.faults = faults()
    proxy.break_watches()
    pods.label("away", THEIRS)
    pods.label("back", THEIRS)
    pods.label("back", OURS)
    pods.delete("gone")
    pods.add("new")
    for number in range(5):
        pods.set_ready("ready", f"10.0.0.{number}")
    # What comes late comes with the next event.
    pods.add("last")
    expected = {"back": "", "last": "", "new": "", "ready": "10.0.0.4"}
    await pods.until(lambda: expected.items() <= pods.known.items())
    proxy.heal()
    proxy.break_watches()

    await pods.until(lambda: pods.known == expected)


@pytest.mark.parametrize("code", [410, 500])
async def test_a_watch_ends_with_an_error(pods: Pods, proxy: Proxy, code: int):
    await pods.watch.follow(pool(**OURS))
    proxy.send_into_watches(error_event(code))
    pods.add("engine-0")
    await pods.until_known({"engine-0"})


async def test_events_of_the_past_change_nothing(pods: Pods, proxy: Proxy):
    pods.add("engine-0", "engine-1")
    await pods.watch.follow(pool(**OURS))
    old = [json.dumps({"type": "MODIFIED", "object": pods.body(name)}).encode() for name in ("engine-0", "engine-1")]
    pods.set_ready("engine-0", "10.0.0.1")
    pods.label("engine-1", THEIRS)
    await pods.until(lambda: pods.known == {"engine-0": "10.0.0.1"})
    changes = pods.changes

    proxy.send_into_watches(*(line + b"\n" for line in old))
    pods.add("last")

    await pods.until(lambda: pods.known == {"engine-0": "10.0.0.1", "last": ""})
    assert pods.changes == changes + 1


async def test_a_watch_that_says_nothing_is_put_right(pods: Pods, proxy: Proxy, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pod_watch, "WATCH_SECONDS", (1, 1))
    pods.add("gone")
    await pods.watch.follow(pool(**OURS))
    proxy.faults = Faults(stream=lambda _: [])
    proxy.break_watches()
    pods.delete("gone")
    pods.add("new")
    await pods.until_known({"new"})


async def test_pods_that_can_not_be_listed_are_said_to_be_unknown_and_not_to_be_none(pods: Pods, proxy: Proxy):
    pods.add("engine-0")
    proxy.faults = Faults(reads=Refusal(403), only="/pods", times=1000)
    for _ in range(2):
        with pytest.raises(PodsUnknownError, match="403 made up by a test"):
            await pods.watch.follow(pool(**OURS))
    assert not pods.watch.knows_pods_of(pool(**OURS))
    proxy.heal()
    await pods.until(lambda: pods.watch.knows_pods_of(pool(**OURS)))
    await pods.watch.follow(pool(**OURS))
    assert pods.known.keys() == {"engine-0"}
    assert pods.changes == 1


async def test_pods_that_were_listed_long_ago_are_said_to_be(pods: Pods, proxy: Proxy, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pod_watch, "STALE_SECONDS", 3.0)
    monkeypatch.setattr(pod_watch, "WATCH_SECONDS", (1, 1))
    pods.add("engine-0")
    await pods.watch.follow(pool(**OURS))
    pods.watch.check_age()
    assert not pods.watch.is_stale

    proxy.faults = Faults(reads=Refusal(500), only="/pods", times=1000)
    await pods.until(lambda: pods.watch.is_stale)
    with pytest.raises(PodsUnknownError, match="500 made up by a test"):
        pods.watch.check_age()
    assert pods.known.keys() == {"engine-0"}, "they are what is known"
    proxy.heal()
    await pods.until(lambda: not pods.watch.is_stale)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(Faults(watches=Refusal(410), times=1000), id="refused"),
        pytest.param(Faults(watches=BROKEN, times=1000), id="broken"),
        pytest.param(Faults(stream=lambda _: [b"no JSON\n"]), id="no JSON"),
        pytest.param(Faults(stream=lambda _: [error_event(410)]), id="ended"),
    ],
)
async def test_a_watch_that_never_works_costs_few_listings(
    pods: Pods, monkeypatch: pytest.MonkeyPatch, proxy: Proxy, faults: Faults
):
    listings, list_pods = [], pods.api.list_pods

    def counted(*args: Any) -> Any:
        listings.append(args)
        return list_pods(*args)

    monkeypatch.setattr(pods.api, "list_pods", counted)
    proxy.faults = faults
    began = time.monotonic()
    await pods.watch.follow(pool(**OURS))
    for number in range(20):
        # Each of them is an event, if there is a watch.
        pods.add(f"engine-{number}")
        await asyncio.sleep(0.1)
    await pods.until(lambda: len(pods.known) == 20)
    # After 0.1, 0.2, 0.4 seconds and so on; in the end after 5.
    assert len(listings) <= 8 + (time.monotonic() - began) / pod_watch.LAST_PAUSE_SECONDS


async def test_a_watch_costs_little_memory(operator_kubeconfig: Path, namespace: str):
    """Over TLS, as in a cluster."""
    number = 100
    async with connected(Connection(str(operator_kubeconfig)), None) as api:
        store, log = Store(), About(logging.getLogger(__name__), {})
        watches = [PodWatch((namespace, f"pool-{each}"), store, api, lambda: None, log) for each in range(number)]
        tracemalloc.start()
        try:
            await asyncio.gather(*(watch.follow(pool(**OURS)) for watch in watches))
            # The watches begin when all are listed.
            await asyncio.sleep(1.0)
            size, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            for watch in watches:
                watch.stop()
    assert size < number * 100_000


async def test_who_knows_no_pools_pods_is_not_ready_and_who_lacks_one_says_so(
    pods: Pods, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pod_watch, "STALE_SECONDS", 0.5)

    def put(name: str, **labels: str) -> None:
        there = body(name, metadata={"namespace": pods.key[0]}, spec={"selector": {"matchLabels": labels}})
        pods.store.pools.put(there)

    leader = Leader(lambda: Reconciler(pods.store, pods.api))
    options = Options(Connection(None), namespace=None, probes=None, lease=None)
    operator = App(options, pods.api, leader, Alone(), pods.store)
    put("demo", **OURS)
    proxy.faults = Faults(reads=Refusal(403), only="/pods", times=1000)
    term = asyncio.create_task(leader.run(lambda: asyncio.sleep(0)))
    leader.check_all()
    assert operator.ready()[0]
    await pods.until(lambda: operator.ready()[1]["poolsWithoutPods"] == 1)
    assert not operator.ready()[0]
    assert operator.live()[0], "a restart would not help"

    put("known", app="no label")
    leader.check_all()
    assert operator.ready()[0]
    assert operator.ready()[1]["poolsWithoutPods"] == 1
    proxy.heal()
    await pods.until(lambda: "demo" in {key[1] for key in pods.store.pods} and leader.without_pods() == (0, 2))
    term.cancel()
    await asyncio.gather(term, return_exceptions=True)
    assert pods.store.pods == {}, "a new term begins with listings"
    assert leader.without_pods() == (0, 0)
