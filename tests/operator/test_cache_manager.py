"""KVStorages and KVCacheGroups with a real API server, the real operator and a real KV-cache manager."""

import json
import secrets
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane import Cluster
from hack.ports import free_ports
from tenantzone_contract.cache.cache_names import instance_name, pool_group, zone_group
from tests.operator.conftest import Operator
from tests.operator.kube import Kube, eventually
from tests.operator.manager_process import ManagerRefusal
from tests.operator.manager_site import API, SIZE, ManagerSite, accounts, engine_token, register, site_in, write
from tests.operator.stolen_token import patched, stolen_token
from tests.operator.world import World, world_in

pytestmark = pytest.mark.controlplane


@dataclass
class Site(ManagerSite):
    """A manager's site with an operator."""

    operator: Operator
    console: str
    """The URL of the operator's page."""


@pytest.fixture(scope="module")
def site(
    control_plane: Cluster, kube: Kube, operator_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("manager")
    with site_in(control_plane, kube, folder) as made:
        manager, (console_port,) = made.manager, free_ports(1)
        flags = ("--no-leader-elect", "--manager-url", manager.url, "--manager-token-file", str(manager.token_file))
        operator = Operator(operator_kubeconfig, folder / "operator.log", *flags, "--console-port", str(console_port))
        operator.start()
        operator.await_running()
        yield Site(kube, manager, folder, operator, f"http://127.0.0.1:{console_port}")
        assert operator.stop() == 0
    assert "Traceback" not in operator.log, operator.log


@pytest.fixture
def name() -> str:
    """A unique name for cluster-scoped objects, so that no two tests collide."""
    return f"t-{secrets.token_hex(3)}"


@pytest.fixture
def world(site: Site, control_plane: Cluster, kube: Kube, namespace: str) -> Iterator[World]:
    with world_in(control_plane, kube, namespace) as made:
        yield made


def test_a_zone_s_limit_holds_from_its_first_block_on(
    site: Site, world: World, control_plane: Cluster, name: str
) -> None:
    token = engine_token(control_plane, world.namespace)
    site.disk(name)
    world.add_pool(tiers={"manager": {"serviceAccountName": "engines"}})
    world.add_zone("acme")
    limited = {"namespace": world.namespace, "name": "acme", "types": [{"type": "FileSystem", "limit": 2 * SIZE}]}
    site.create("KVCacheGroup", name, storages=[name], zones=[limited])
    site.condition("KVCacheGroup", name, "Ready", "True")
    instance = instance_name("acme", "1" * 64)
    register(site, token, instance, zone_group(world.namespace, "demo", "acme"))
    keys = ["AAAA", "BBBB", "CCCC"]
    started = site.manager.ask("StartWriteCache", token, instance_id=instance, block_keys=keys)
    assert [block["standing"] for block in started["blocks"]] == ["write", "write", "no_room"]


def test_a_team_s_engines_store_blocks_within_its_quota_and_all_of_it_goes(
    site: Site, world: World, control_plane: Cluster, name: str
) -> None:
    token = engine_token(control_plane, world.namespace)
    path = site.disk(name, capacity="1Gi", watermark="90%")
    pools = [{"namespace": world.namespace, "name": "demo"}]
    site.create("KVCacheGroup", name, storages=[name], pools=pools, quota={"limit": 4 * SIZE})
    site.condition("KVStorage", name, "Ready", "True")
    site.condition("KVCacheGroup", name, "Ready", "False", "PoolsUnresolved")
    # As engines name both.
    meant, instance = pool_group(world.namespace, "demo"), instance_name("acme", "0" * 64)
    with pytest.raises(ManagerRefusal, match="registered service account"):
        register(site, token, instance, meant)

    world.add_pool(tiers={"manager": {"serviceAccountName": "engines"}})
    world.add_zone("acme")
    site.condition("KVCacheGroup", name, "Ready", "True")
    register(site, token, instance, meant)
    write(site, token, instance, "aa", "bb", "cc")
    eventually(lambda: site.status("KVCacheGroup", name)["held"] == 3 * SIZE)
    status = site.status("KVCacheGroup", name)
    assert (status["summary"], status["instances"]) == ("12Ki/16Ki", 1)
    assert status["types"] == [{"type": "FileSystem", "held": 3 * SIZE, "summary": "12Ki"}]
    eventually(lambda: site.status("KVStorage", name)["held"] == 3 * SIZE)
    shown = control_plane.kubectl("get", "kvstorages,kvcachegroups", "--output=wide").stdout
    assert "12Ki/1Gi" in shown
    assert str(path) in shown

    acme = {"namespace": world.namespace, "name": "acme"}
    promised = [acme | {"types": [{"type": "FileSystem", "reserved": 2 * SIZE}]}]
    site.change("KVCacheGroup", name, zones=promised)
    eventually(lambda: site.status("KVCacheGroup", name)["zones"][0]["summary"] == "12Ki/8Ki")
    terms = {"evictionPolicy": "LFU", "ttl": "1h", "moves": {"bytesPerSecond": "1M"}}
    site.change("KVCacheGroup", name, quota={"limit": 4 * SIZE, "watermark": "25%"}, **terms)
    eventually(lambda: site.status("KVCacheGroup", name)["evictedBlocks"] == 1)
    reported = site.registered("ListInstanceGroups", "group")[name]["group"]
    assert reported["total"] == {"limit": 4 * SIZE, "watermark": 0.25}
    assert (reported["eviction_policy"], reported["ttl_seconds"]) == ("LFU", 3600)
    assert reported["moves"] == {"bytes_per_second": 1_000_000}
    # What was promised was left, though it is above the watermark; what is no longer promised goes.
    site.change("KVCacheGroup", name, zones=[acme])
    eventually(lambda: site.status("KVCacheGroup", name)["evictedBlocks"] == 2)

    # Deleted in the wrong order, as by a user who does not know it.
    site.delete("KVStorage", name)
    waits = site.condition("KVStorage", name, "Registered", "False", "Deleting")
    assert f"waiting until the groups {name} no longer name this storage" in waits["message"]
    site.delete("KVCacheGroup", name)
    site.await_gone("KVCacheGroup", name)
    site.await_gone("KVStorage", name)
    assert not [file for file in (path / "objects").rglob("*") if file.is_file()]
    assert instance not in site.registered("ListInstances", "instance")
    assert name not in site.registered("ListStorages", "storage")
    assert {event["reason"] for event in events(site, name)} >= {"Registered"}


def events(site: Site, name: str) -> list[dict[str, Any]]:
    found = site.kube.get("/apis/events.k8s.io/v1/namespaces/default/events")
    assert found is not None
    return [event for event in found["items"] if event["regarding"]["name"] == name]


def test_a_storage_that_fails_says_so_and_recovers(site: Site, name: str) -> None:
    path = site.disk(name)
    site.condition("KVStorage", name, "Healthy", "True")
    path.rename(path.with_suffix(".away"))
    unhealthy = site.condition("KVStorage", name, "Healthy", "False", "Unhealthy")
    assert "there is no folder" in unhealthy["message"]
    site.condition("KVStorage", name, "Ready", "False", "Unhealthy")
    eventually(lambda: "StorageUnhealthy" in {event["reason"] for event in events(site, name)})
    path.with_suffix(".away").rename(path)
    site.condition("KVStorage", name, "Ready", "True")

    site.change("KVStorage", name, enabled=False)
    site.condition("KVStorage", name, "Ready", "False", "Disabled")
    assert not site.registered("ListStorages", "storage")[name].get("available")
    site.change("KVStorage", name, enabled=True)
    site.condition("KVStorage", name, "Ready", "True")
    site.delete("KVStorage", name)
    site.await_gone("KVStorage", name)


def test_the_console_lists_what_is_declared(site: Site, name: str) -> None:
    site.disk(name, capacity="1Gi")
    site.create("KVCacheGroup", name, storages=[name], quota={"limit": "1Gi"})

    def are_ready() -> bool:
        with urllib.request.urlopen(f"{site.console}/api/storages", timeout=10) as answer:
            found = json.load(answer)
        rows = [row for kind in ("storages", "groups") for row in found[kind] if row["name"] == name]
        assert [(row["limit"], row["ready"].get("status")) for row in rows] == [(2**30, "True")] * 2, found
        return True

    eventually(are_ready)
    for kind in ("KVCacheGroup", "KVStorage"):
        site.delete(kind, name)
        site.await_gone(kind, name)


def test_what_is_refused_leaves_what_was_there(site: Site, name: str) -> None:
    site.disk(name)
    site.create("KVCacheGroup", name, storages=[name], quota={"limit": "1Gi"})
    site.condition("KVCacheGroup", name, "Ready", "True")
    before = site.registered("ListInstanceGroups", "group")[name]

    site.change("KVCacheGroup", name, storages=[name, "nowhere"], quota={"limit": "2Gi"})
    refused = site.condition("KVCacheGroup", name, "Registered", "False", "StorageNotFound")
    assert "nowhere" in refused["message"]
    assert site.registered("ListInstanceGroups", "group")[name] == before
    site.change("KVCacheGroup", name, storages=[name])
    site.condition("KVCacheGroup", name, "Ready", "True")
    assert site.registered("ListInstanceGroups", "group")[name]["group"]["total"] == {"limit": 2**31}

    other = f"{name}-s3"
    site.create("KVStorage", other, type="S3", s3={"bucket": "cache", "credentialsKey": "none"})
    site.condition("KVStorage", other, "Registered", "True")
    assert "can't read the credentials file" in site.condition("KVStorage", other, "Healthy", "False")["message"]
    for kind, each in (("KVCacheGroup", name), ("KVStorage", name), ("KVStorage", other)):
        site.delete(kind, each)
        site.await_gone(kind, each)


def test_a_manager_that_is_down_changes_nothing_and_gets_the_state_when_it_is_back(site: Site, name: str) -> None:
    site.disk(name, capacity="1Gi")
    site.condition("KVStorage", name, "Ready", "True")
    await_reported(site, answers=1)
    site.manager.kill()
    try:
        gone = site.condition("KVStorage", name, "Healthy", "Unknown", "ManagerUnreachable")
        assert site.manager.url in gone["message"]
        await_reported(site, answers=0)
        assert site.condition("KVStorage", name, "Registered", "True")
        assert site.status("KVStorage", name)["summary"] == "0/1Gi"
        site.change("KVStorage", name, capacity="2Gi")
        site.condition("KVStorage", name, "Registered", "Unknown", "ManagerUnreachable")
        site.delete("KVStorage", name)
        assert site.kube.get(site.path("KVStorage", name)) is not None
    finally:
        site.manager.start()
    site.await_gone("KVStorage", name)
    await_reported(site, answers=1)


def await_reported(site: Site, answers: int) -> None:
    """Waits until Prometheus would learn whether the manager answers."""
    eventually(lambda: site.operator.scrape().value("tenantzone_operator_manager_answers") == answers)


def test_undeclared_storages_stay_as_they_are(site: Site, name: str) -> None:
    path = site.folder / name
    path.mkdir()
    by_hand = {"name": f"by-hand-{name}", "type": "FileSystem", "options": {"root": str(path)}}
    site.manager.ask("RegisterStorage", storage=by_hand)
    site.disk(f"{name}-declared")
    site.condition("KVStorage", f"{name}-declared", "Ready", "True")
    assert site.registered("ListStorages", "storage")[by_hand["name"]]["storage"] == by_hand
    site.delete("KVStorage", f"{name}-declared")
    site.await_gone("KVStorage", f"{name}-declared")
    assert by_hand["name"] in site.registered("ListStorages", "storage")
    site.manager.ask("UnRegisterStorage", name=by_hand["name"])


def test_two_pools_never_share_a_service_account(site: Site, world: World, control_plane: Cluster, name: str) -> None:
    token = engine_token(control_plane, world.namespace)
    manager = {"manager": {"serviceAccountName": "engines"}}
    world.add_pool("first", tiers=manager)
    eventually(lambda: accounts(site).get(f"{world.namespace}/engines") == f"{world.namespace}/first")
    world.add_pool("second", tiers=manager)
    site.disk(name)
    pools = [{"namespace": world.namespace, "name": pool} for pool in ("first", "second")]
    site.create("KVCacheGroup", name, storages=[name], pools=pools)
    unresolved = site.condition("KVCacheGroup", name, "PoolsResolved", "False")
    assert f"the older pool {world.namespace}/first also names the service account" in unresolved["message"]
    register(site, token, name, name)
    assert site.registered("ListInstances", "instance")[name]["instance"]["pool"] == f"{world.namespace}/first"

    # From now on, the pool belongs to an older group that names it.
    site.create("KVCacheGroup", f"{name}-b", storages=[name])
    site.condition("KVCacheGroup", f"{name}-b", "Registered", "True")
    site.change("KVCacheGroup", name, pools=[])
    site.condition("KVCacheGroup", name, "PoolsResolved", "True", "NoPools")
    site.change("KVCacheGroup", f"{name}-b", pools=pools[:1])
    site.condition("KVCacheGroup", f"{name}-b", "Ready", "True")
    site.change("KVCacheGroup", name, pools=pools[:1])
    site.condition("KVCacheGroup", name, "Ready", "True")
    site.condition("KVCacheGroup", f"{name}-b", "PoolsResolved", "False")
    reported = site.registered("ListInstanceGroups", "group")
    assert [reported[each]["group"].get("aliases", []) for each in (name, f"{name}-b")] == [
        [pool_group(world.namespace, "first")],
        [],
    ]
    site.delete("KVCacheGroup", f"{name}-b")
    site.await_gone("KVCacheGroup", f"{name}-b")

    world.kube.call("DELETE", f"{API}/namespaces/{world.namespace}/zonepools/first")
    eventually(lambda: accounts(site).get(f"{world.namespace}/engines") == f"{world.namespace}/second")
    for kind in ("KVCacheGroup", "KVStorage"):
        site.delete(kind, name)
        site.await_gone(kind, name)


def test_who_has_the_operator_s_token_changes_no_spec(
    site: Site, control_plane: Cluster, operator_kubeconfig: Path, name: str
) -> None:
    site.disk(name)
    site.condition("KVStorage", name, "Ready", "True")
    path = site.path("KVStorage", name)
    with stolen_token(control_plane, operator_kubeconfig) as thief:
        eventually(lambda: "nothing of a KVStorage" in patched(thief, path, {"spec": {"enabled": False}}))
        assert "no finalizer but its own" in patched(thief, path, {"metadata": {"finalizers": ["example.com/x"]}})
        assert "no label, annotation" in patched(thief, path, {"metadata": {"labels": {"a": "b"}}})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            thief.call("DELETE", path)
    site.delete("KVStorage", name)
    site.await_gone("KVStorage", name)


def test_an_operator_that_starts_anew_goes_on_where_the_last_one_ended(site: Site, name: str) -> None:
    path = site.disk(name)
    site.condition("KVStorage", name, "Ready", "True")
    site.operator.kill()
    site.delete("KVStorage", name)
    shutil.rmtree(path)
    site.operator.start()
    site.operator.await_running()
    site.await_gone("KVStorage", name)
    assert name not in site.registered("ListStorages", "storage")
