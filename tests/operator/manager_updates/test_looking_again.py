"""A declaration makes the operator look again at once, and its own writes do not."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from tenantzone_operator.cache_manager.declared import read_storage
from tenantzone_operator.cache_manager.objects import Objects
from tenantzone_operator.kube.api import Api
from tenantzone_operator.kube.rest import Login, Rest
from tests.operator.manager_updates.servers import GROUP_REPORT, Cluster, Manager, Run, login


class Noting(Rest):
    """Notes for each event of a watch whether the watcher goes on to the next one."""

    def __init__(self, log_in: Login) -> None:
        super().__init__(log_in)
        self.outcomes: asyncio.Queue[bool] = asyncio.Queue()

    async def watch(self, *args: Any, **named: Any) -> AsyncGenerator[dict[str, Any], None]:
        async for event in super().watch(*args, **named):
            goes_on = False
            try:
                yield event
                goes_on = True
            finally:
                self.outcomes.put_nowait(goes_on)


@pytest.mark.parametrize("is_ours", [True, False])
async def test_what_is_written_here_is_no_reason_to_look_again(cluster: Cluster, is_ours: bool) -> None:
    async with TestServer(cluster.app()) as server, Noting(login(server)) as rest:
        objects = Objects(Api(rest, None))
        (storage,) = await objects.list_all("kvstorages", read_storage)
        writer = objects if is_ours else Objects(Api(rest, None))
        await writer.apply_status("kvstorages", storage, {"message": "anything"})
        watching = asyncio.create_task(objects.await_change(60))
        async with asyncio.timeout(60):
            assert await rest.outcomes.get() is is_ours
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_what_is_declared_meanwhile_is_a_reason(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenantzone_operator.cache_manager.reconciler.ROUND_SECONDS", 60.0)
    run()
    await cluster.await_written(lambda: cluster.has_status("kvstorages"))
    declared = cluster.objects["kvstorages"]
    metadata = declared["metadata"] | {"generation": 2, "resourceVersion": "1000"}
    cluster.objects["kvstorages"] = declared | {"metadata": metadata}
    await cluster.await_written(lambda: cluster.objects["kvstorages"]["status"]["observedGeneration"] == 2)


@pytest.mark.usefixtures("in_a_hurry")
@pytest.mark.parametrize("served", ["shop"])
async def test_who_is_not_answered_does_not_contend_with_another_operator_who_is(
    cluster: Cluster, manager: Manager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenantzone_operator.cache_manager.reconciler.LONGEST_SECONDS", 1e6)
    manager.answers["ListInstanceGroups"] = "PERMISSION_DENIED"
    run()
    await cluster.await_written(lambda: cluster.has_status("kvstorages"))
    assert cluster.condition("kvstorages", "Ready") == ("Unknown", "ManagerUnreachable")
    # As the operator of another namespace writes it.
    metadata = cluster.objects["kvstorages"]["metadata"] | {"resourceVersion": "1000"}
    cluster.objects["kvstorages"] |= {"metadata": metadata, "status": {"message": "it is well"}}
    await manager.await_asked("ListStorages", 5)
    assert cluster.message("kvstorages") == "it is well"


@pytest.mark.usefixtures("in_a_hurry")
@pytest.mark.parametrize("served", ["shop"])
async def test_who_is_refused_does_not_contend_with_another_operator_who_is_not(
    cluster: Cluster, manager: Manager, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenantzone_operator.cache_manager.reconciler.LONGEST_SECONDS", 1e6)
    reported = {"name": "team", "storages": ["disk"], "aliases": ["shop.gone"]}
    manager.answers |= {
        "ListInstanceGroups": {"groups": [GROUP_REPORT | {"group": reported}]},
        "PutInstanceGroup": "INVALID_ARGUMENT",
    }
    run()
    await cluster.await_written(lambda: cluster.has_status("kvcachegroups"))
    assert cluster.condition("kvcachegroups", "Registered") == ("False", "ManagerRefused")
    # As the operator of another namespace writes it.
    metadata = cluster.objects["kvcachegroups"]["metadata"] | {"resourceVersion": "1000"}
    cluster.objects["kvcachegroups"] |= {"metadata": metadata, "status": {"message": "it is well"}}
    await manager.await_asked("PutInstanceGroup", 5)
    assert cluster.message("kvcachegroups") == "it is well"
