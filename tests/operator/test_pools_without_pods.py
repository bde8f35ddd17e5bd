"""The operator's status for pools whose pods it can't list, and for pools that it does not serve."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hack.harness.proxy import Faults, Proxy, Refusal
from tenantzone_operator.app import Operator, Options
from tenantzone_operator.engines.admin_key import AdminKey
from tenantzone_operator.kube import pod_watch
from tenantzone_operator.kube.credentials.connection import Connection
from tenantzone_operator.leader.leader import Leader
from tenantzone_operator.leader.leadership import Alone
from tenantzone_operator.pool.reconcile import Reconciler
from tests.operator.objects import body
from tests.operator.watched_pods import OURS, Pods

pytestmark = pytest.mark.controlplane


@pytest.fixture(autouse=True)
def _pods_grow_old_soon(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pod_watch, "STALE_SECONDS", 0.5)


@asynccontextmanager
async def leading(pods: Pods) -> AsyncIterator[Operator]:
    """An operator that leads, without watches of pools and zones: the tests put those into its store."""
    leader = Leader(lambda: Reconciler(pods.store, pods.api, AdminKey(pods.api, pods.key[0])))
    options = Options(Connection(None), namespace=None, probes=None, lease=None)
    term = asyncio.create_task(leader.run(lambda: asyncio.sleep(0)))
    try:
        yield Operator(options, pods.api, leader, Alone(), pods.store)
    finally:
        term.cancel()
        await asyncio.gather(term, return_exceptions=True)


def put_pool(pods: Pods, name: str, labels: dict[str, str], status: dict[str, Any] | None = None) -> None:
    metadata, spec = {"namespace": pods.key[0]}, {"selector": {"matchLabels": labels}}
    pods.store.pools.put(body(name, metadata=metadata, spec=spec, status=status or {}))


def put_zone(pods: Pods, name: str, pool: str) -> None:
    pods.store.zones.put(body(name, metadata={"namespace": pods.key[0]}, spec={"pool": pool}))


def without_pods(operator: Operator) -> int:
    return operator.ready()[1]["poolsWithoutPods"]


async def test_who_knows_no_pools_pods_is_not_ready_and_who_lacks_one_says_so(pods: Pods, proxy: Proxy):
    put_pool(pods, "demo", OURS)
    proxy.faults = Faults(reads=Refusal(500), only="/pods", times=1000)
    async with leading(pods) as operator:
        operator.leader.check_all()
        assert operator.ready()[0]
        await pods.until(lambda: without_pods(operator) == 1)
        assert not operator.ready()[0]
        assert operator.live()[0], "a restart would not help"

        put_zone(pods, "lost", pool="none")
        operator.leader.check_all()
        assert not operator.ready()[0], "a pool that does not exist has no pods to know"

        put_pool(pods, "known", {"app": "no label"})
        operator.leader.check_all()
        await pods.until(lambda: operator.ready()[0])
        assert without_pods(operator) == 1
        proxy.heal()
        await pods.until(lambda: operator.leader.without_pods() == (0, 2))
        assert "demo" in {key[1] for key in pods.store.pods}
    assert pods.store.pods == {}, "a new term begins with listings"
    assert operator.leader.without_pods() == (0, 0)


async def test_pools_that_are_not_served_count_for_nothing(pods: Pods, proxy: Proxy):
    put_pool(pods, "demo", OURS)
    proxy.faults = Faults(reads=Refusal(403), only="/pods", times=1000)
    async with leading(pods) as operator:
        operator.leader.check_all()

        def is_said() -> bool:
            outcome = operator.leader.outcomes().get(pods.key)
            return outcome is not None and "PoolNotServed" in str(outcome.pool)

        await pods.until(is_said)
        await asyncio.sleep(2 * pod_watch.STALE_SECONDS)
        assert without_pods(operator) == 0
        assert operator.leader.without_pods() == (0, 0)
        assert operator.ready()[0], "pools of others are none of its business"

        proxy.heal()
        await pods.until(lambda: operator.leader.without_pods() == (0, 1))


async def test_a_pool_that_had_a_config_counts_when_the_rights_for_it_are_gone(pods: Pods, proxy: Proxy):
    put_pool(pods, "demo", OURS, {"configGeneration": 7})
    proxy.faults = Faults(reads=Refusal(403), only="/pods", times=1000)
    async with leading(pods) as operator:
        operator.leader.check_all()
        await pods.until(lambda: without_pods(operator) == 1)
        assert not operator.ready()[0]
