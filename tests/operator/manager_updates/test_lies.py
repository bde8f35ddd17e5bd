"""A KV-cache manager that lies costs only what it should have done."""

from typing import Any

import pytest

from tests.operator.manager_updates.servers import GROUP_REPORT, REPORT, Cluster, Manager, Run


async def test_an_honest_one_makes_both_known(cluster: Cluster, run: Run) -> None:
    run()
    await cluster.await_written(lambda: cluster.has_status("kvcachegroups"))
    await cluster.await_written(lambda: cluster.condition("kvstorages", "Ready") == ("True", "Ready"))


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("ListStorages", {"storages": [REPORT | {"used": "much"}]}),
        ("ListStorages", {"storages": [REPORT | {"used": -1}]}),
        ("ListStorages", {"storages": [REPORT | {"used": 2**63}]}),
        ("ListStorages", {"storages": [REPORT | {"problem": {"it": "is"}}]}),
        ("ListStorages", {"storages": {"disk": REPORT}}),
        ("ListStorages", {"storages": [None]}),
        ("ListInstanceGroups", {"groups": [GROUP_REPORT | {"total": None}]}),
        ("ListInstanceGroups", {"groups": [GROUP_REPORT | {"group": {"name": "team", "storages": 5}}]}),
        ("ListInstanceGroups", {"groups": [GROUP_REPORT | {"instances": 1e99}]}),
        ("ListInstances", {"instances": None}),
        ("ListInstances", {"instances": [{"instance": {"name": "x"}}]}),
        ("ListServiceAccounts", {}),
        ("ListServiceAccounts", {"accounts": [{"name": ["a/b"], "pool": "a/b"}]}),
        ("PutInstanceGroup", {"group": "team"}),
        ("ListStorages", "FAILED_PRECONDITION"),
    ],
)
async def test_one_that_answers_as_no_manager_does_is_unreachable(
    cluster: Cluster, manager: Manager, run: Run, call: str, answer: Any
) -> None:
    if call == "PutInstanceGroup":
        manager.answers["ListInstanceGroups"] = {"groups": []}
    manager.answers[call] = answer
    run()
    await cluster.await_written(lambda: cluster.has_status("kvcachegroups"))
    assert cluster.condition("kvstorages", "Healthy") == ("Unknown", "ManagerUnreachable")
    assert cluster.condition("kvcachegroups", "Registered") == ("Unknown", "ManagerUnreachable")
    words = "its own words" if isinstance(answer, str) else f"does not answer like a KV-cache manager: {call}: "
    assert words in cluster.message("kvstorages")


async def test_what_it_says_at_length_is_cut(cluster: Cluster, manager: Manager, run: Run) -> None:
    manager.answers["ListStorages"] = {"storages": [REPORT | {"problem": "x" * 100_000}]}
    run()
    await cluster.await_written(lambda: cluster.has_status("kvstorages"))
    assert cluster.message("kvstorages") == "x" * 1000
