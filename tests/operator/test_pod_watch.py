"""One pool's pods, and no others."""

import asyncio
import logging
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from hack.harness.proxy import BROKEN, Faults, Proxy
from tenantzone_operator.kube.api import connected
from tenantzone_operator.kube.credentials.connection import Connection
from tenantzone_operator.kube.pod_watch import PodsUnknownError, PodWatch, list_selected
from tenantzone_operator.kube.resources import read_pool
from tenantzone_operator.kube.store import Store
from tenantzone_operator.logs import About
from tests.operator.objects import body
from tests.operator.watched_pods import OURS, THEIRS, Pods, pool

pytestmark = pytest.mark.controlplane


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


async def followed(watch: PodWatch) -> None:
    """Waits until the pods are known; on busy cores the first attempt may be late, with as many others running."""
    while True:
        with suppress(PodsUnknownError):
            await watch.follow(pool(**OURS))
            return
        await asyncio.sleep(0.1)


async def test_a_watch_costs_little_memory(operator_kubeconfig: Path, namespace: str):
    """Over TLS, as in a cluster."""
    number = 100
    async with connected(Connection(str(operator_kubeconfig)), None) as api:
        store, log = Store(), About(logging.getLogger(__name__), {})
        watches = [PodWatch((namespace, f"pool-{each}"), store, api, lambda: None, log) for each in range(number)]
        tracemalloc.start()
        try:
            await asyncio.gather(*map(followed, watches))
            # The watches begin when all are listed.
            await asyncio.sleep(1.0)
            size, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            for watch in watches:
                watch.stop()
    assert size < number * 100_000
