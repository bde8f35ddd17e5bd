"""A refusal by a KV-cache manager or the API server prevents nothing else, and is logged once."""

from typing import Any

import pytest

from tenantzone_operator.cache_manager.declared import FINALIZER
from tenantzone_operator.kube.store import Store
from tests.operator.manager_updates.servers import GROUP_REPORT, Cluster, Manager, Run, cluster_scoped
from tests.operator.objects import body


async def test_a_service_account_that_is_refused_keeps_nothing_else_from_being_sent(
    cluster: Cluster, manager: Manager, run: Run
) -> None:
    manager.answers["ListServiceAccounts"] = {"accounts": [{"name": "No Name", "pool": "a/b"}]}
    manager.answers["RemoveServiceAccount"] = "INVALID_ARGUMENT"
    run()
    await cluster.await_written(lambda: cluster.has_status("kvstorages"))
    assert cluster.condition("kvstorages", "Ready") == ("True", "Ready")


async def test_a_status_that_is_refused_keeps_no_other_from_being_written(cluster: Cluster, run: Run) -> None:
    cluster.refused = {"kvstorages"}
    run()
    await cluster.await_written(lambda: cluster.has_status("kvcachegroups"))
    assert not cluster.has_status("kvstorages")


@pytest.mark.parametrize(("status", "condition"), [(403, ("False", "NotHeld")), (409, None), (404, None)])
async def test_an_object_that_can_not_be_held_keeps_no_other_from_being_sent(
    cluster: Cluster, manager: Manager, run: Run, status: int, condition: tuple[str, str] | None
) -> None:
    cluster.not_held["kvstorages"] = status
    manager.answers["ListStorages"] = {"storages": []}
    manager.answers["ListServiceAccounts"] = {"accounts": [{"name": "shop/old", "pool": "shop/demo"}]}
    run()
    await cluster.await_written(lambda: cluster.has_status("kvcachegroups"))
    assert cluster.condition("kvcachegroups", "Registered") == ("False", "StorageNotFound")
    assert cluster.has_status("kvstorages") is (condition is not None)
    if condition is not None:
        assert cluster.condition("kvstorages", "Registered") == condition
    calls = [call for call, _ in manager.asked]
    assert "RegisterStorage" not in calls, "what is not held would be left behind"
    assert "RemoveServiceAccount" in calls


async def test_a_group_that_goes_is_let_go_only_when_the_manager_has_let_it_go(
    cluster: Cluster, manager: Manager, run: Run
) -> None:
    """An instance that is already gone is not the group."""
    cluster.leave("kvcachegroups")
    instance = {"instance": {"name": "x", "group": "team", "pool": "shop/demo"}, "bytes_by_type": {}}
    manager.answers |= {
        "ListInstances": {"instances": [instance]},
        "PutInstanceGroup": GROUP_REPORT,
        "UnregisterInstance": "NOT_FOUND",
        "RemoveInstanceGroup": "FAILED_PRECONDITION",
    }
    run()
    await cluster.await_written(lambda: cluster.has_status("kvcachegroups"))
    assert "waiting until" in cluster.condition_message("kvcachegroups", "Registered")
    assert FINALIZER in cluster.objects["kvcachegroups"]["metadata"]["finalizers"]


@pytest.mark.usefixtures("in_a_hurry")
async def test_what_another_operator_has_just_let_go_is_not_reported_again(
    cluster: Cluster, manager: Manager, run: Run
) -> None:
    cluster.objects["kvcachegroups"]["metadata"] |= {"finalizers": [FINALIZER]}
    cluster.not_held = {"kvcachegroups": 409}
    manager.answers |= {"ListInstanceGroups": {"groups": []}, "PutInstanceGroup": GROUP_REPORT}
    run()
    await manager.await_asked("ListServiceAccounts", 3)
    assert "PutInstanceGroup" not in [call for call, _ in manager.asked]
    # It is as it was listed, so the manager has lost it.
    cluster.not_held = {}
    await manager.await_asked("PutInstanceGroup", 1)
    assert cluster.objects["kvcachegroups"]["metadata"]["finalizers"] == [FINALIZER]


async def test_a_group_that_goes_leaves_its_pool_to_another_without_a_refusal(
    cluster: Cluster, manager: Manager, run: Run
) -> None:
    cluster.leave("kvcachegroups")
    cluster.others["other"] = cluster_scoped("other", {"storages": ["disk"]})
    aliased = {"group": {"name": "team", "storages": ["disk"], "aliases": ["shop.demo"]}, "total": {"used": 1}}
    manager.answers |= {
        "ListInstanceGroups": {"groups": [aliased]},
        "PutInstanceGroup": GROUP_REPORT,
        "RemoveInstanceGroup": "FAILED_PRECONDITION",
    }
    run()
    await cluster.await_written(lambda: cluster.has_status("kvcachegroups"))
    reported = [fields["group"] for call, fields in manager.asked if call == "PutInstanceGroup"]
    assert [(each["name"], each.get("aliases", [])) for each in reported[:2]] == [("team", []), ("other", [])]


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    """The last words of each warning of this part of the operator."""
    of_us = [line for line in log.records if line.name.startswith("tenantzone_operator.cache_manager")]
    return [line.getMessage().rpartition(": ")[2] for line in of_us if line.levelname == "WARNING"]


@pytest.mark.usefixtures("in_a_hurry")
@pytest.mark.parametrize("call", ["PutServiceAccount", "RemoveServiceAccount"])
async def test_an_account_that_is_refused_is_logged_once_for_each_change(
    manager: Manager, store: Store, run: Run, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    if call == "PutServiceAccount":
        store.pools.put(
            body(
                "demo",
                spec={
                    "selector": {"matchLabels": {"app": "vllm"}},
                    "tiers": {"manager": {"serviceAccountName": "vllm"}},
                },
            )
        )
    else:
        manager.answers["ListServiceAccounts"] = {"accounts": [{"name": "shop/old", "pool": "shop/demo"}]}

    async def rounds(answer: Any, words: str, count: int = 3) -> None:
        """Waits for `count` rounds in which the manager answers this."""
        manager.words, manager.answers[call] = words, answer
        await manager.await_asked(call, count)

    manager.answers[call] = "INVALID_ARGUMENT"
    run()
    await rounds("INVALID_ARGUMENT", "its own words")
    assert warnings(caplog) == ["its own words"]
    await rounds("INVALID_ARGUMENT", "others")
    assert warnings(caplog) == ["its own words", "others"]
    await rounds({}, "")
    await rounds("INVALID_ARGUMENT", "others")
    assert warnings(caplog) == ["its own words", "others", "others"]


@pytest.mark.usefixtures("in_a_hurry")
async def test_a_status_that_is_refused_is_logged_once_for_each_change(
    cluster: Cluster, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.refused = {"kvstorages"}

    async def rounds(why: str) -> None:
        cluster.why, before = why, cluster.refusals
        await cluster.await_written(lambda: cluster.refusals >= before + 3)

    run()
    await rounds("it is invalid")
    assert warnings(caplog) == ["422 it is invalid"]
    await rounds("it is too long")
    assert warnings(caplog) == ["422 it is invalid", "422 it is too long"]
    cluster.refused = set()
    await cluster.await_written(lambda: cluster.has_status("kvstorages"))
    metadata = cluster.objects["kvstorages"]["metadata"] | {"generation": 2}
    cluster.refused, cluster.objects["kvstorages"]["metadata"] = {"kvstorages"}, metadata
    await rounds("it is too long")
    assert warnings(caplog) == ["422 it is invalid", "422 it is too long", "422 it is too long"]
