"""Two real operators, each of one namespace, that use one KV-cache manager; and their successors."""

import re
import secrets
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

from hack.controlplane import Cluster
from tenantzone_contract.cache.cache_names import instance_name, pool_group, zone_group
from tests.operator.conftest import Operator
from tests.operator.kube import Kube, eventually
from tests.operator.manager_site import SIZE, ManagerSite, accounts, engine_token, register, site_in, write
from tests.operator.world import World, world_in

pytestmark = pytest.mark.controlplane


class Start(Protocol):
    def __call__(self, namespace: str | None, token: Path | None = None) -> Operator: ...


ROUNDS = 2


@pytest.fixture(scope="module")
def site(control_plane: Cluster, kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagerSite]:
    with site_in(control_plane, kube, tmp_path_factory.mktemp("manager")) as made:
        yield made


@pytest.fixture
def start(site: ManagerSite, operator_kubeconfig: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts an operator of a namespace, or of all."""
    flags = ("--no-leader-elect", "--manager-url", site.manager.url)
    started: list[Operator] = []

    def run(namespace: str | None, token: Path | None = None) -> Operator:
        shown = ("--manager-token-file", str(token or site.manager.token_file))
        log = tmp_path / f"{len(started)}.log"
        operator = Operator(operator_kubeconfig, log, *flags, *shown, namespace=namespace)
        operator.start()
        started.append(operator)
        return operator

    yield run
    for operator in started:
        if operator.is_running:
            operator.kill()
        assert "Traceback" not in operator.log, operator.log


@pytest.fixture
def worlds(control_plane: Cluster, kube: Kube) -> Iterator[list[World]]:
    """Two namespaces, each with a pool of the same name, a zone of the same name, and its engines' account."""
    made = []
    with ExitStack() as stack:
        for _ in range(2):
            namespace = f"t-{secrets.token_hex(4)}"
            control_plane.create_namespace(namespace)
            # Operators of later tests watch all namespaces.
            stack.callback(control_plane.delete_namespace, namespace)
            world = stack.enter_context(world_in(control_plane, kube, namespace))
            world.add_pool(tiers={"manager": {"serviceAccountName": "engines"}})
            world.add_zone("acme")
            made.append(world)
        yield made


@pytest.fixture
def group(site: ManagerSite, worlds: list[World]) -> str:
    """A group that both pools and both zones share, with floors of the zones' own."""
    name = f"t-{secrets.token_hex(3)}"
    site.disk(name)
    pools = [{"namespace": world.namespace, "name": "demo"} for world in worlds]
    types = [{"type": "FileSystem", "reserved": SIZE}]
    zones = [{"namespace": world.namespace, "name": "acme", "types": types} for world in worlds]
    site.create("KVCacheGroup", name, storages=[name], pools=pools, zones=zones, quota={"limit": 8 * SIZE})
    return name


def reported(site: ManagerSite, name: str) -> dict[str, Any]:
    found: dict[str, Any] = site.registered("ListInstanceGroups", "group")[name]["group"]
    return found


def calls(site: ManagerSite, call: str) -> int:
    """How often the manager got this call, by its metrics."""
    with urllib.request.urlopen(f"{site.manager.url}/metrics", timeout=10) as answer:
        found = re.findall(rf'requests_total{{call="{call}",code="[^"]*"}} ([0-9.e+]+)', answer.read().decode())
    return int(sum(map(float, found)))


def await_rounds(site: ManagerSite, operators: int) -> None:
    """Waits until each of `operators` operators has looked at the manager several times more."""
    goal = calls(site, "ListServiceAccounts") + ROUNDS * operators
    eventually(lambda: calls(site, "ListServiceAccounts") >= goal)


def pools_of(worlds: list[World]) -> set[str]:
    return {f"{world.namespace}/demo" for world in worlds}


def names_of(worlds: list[World]) -> set[str]:
    return {
        made
        for each in worlds
        for made in (pool_group(each.namespace, "demo"), zone_group(each.namespace, "demo", "acme"))
    }


def await_shared(site: ManagerSite, group: str, worlds: list[World]) -> None:
    def is_shared() -> bool:
        found = reported(site, group)
        assert set(found.get("pools", ())) == pools_of(worlds), found
        assert set(found.get("aliases", ())) == names_of(worlds), found
        return True

    eventually(is_shared, timeout=90)


def await_rest(site: ManagerSite, name: str, operators: int) -> None:
    """Waits until nothing changes and nothing is written, while each operator looks several times."""

    def seen() -> tuple[Any, ...]:
        kinds = ("KVCacheGroup", "KVStorage")
        versions = [site.kube.call("GET", site.path(kind, name))["metadata"]["resourceVersion"] for kind in kinds]
        return calls(site, "PutInstanceGroup"), reported(site, name), versions

    def is_at_rest() -> bool:
        before = seen()
        await_rounds(site, operators)
        assert seen() == before
        return True

    eventually(is_at_rest)


def is_admitted(site: ManagerSite, account: str) -> bool:
    return account in accounts(site)


def has_said(operator: Operator, words: str) -> bool:
    return words in operator.log


def delete(site: ManagerSite, name: str) -> None:
    for kind in ("KVCacheGroup", "KVStorage"):
        site.delete(kind, name)
    for kind in ("KVCacheGroup", "KVStorage"):
        site.await_gone(kind, name)


def test_neither_takes_out_of_a_group_what_the_other_has_put_there(
    site: ManagerSite, worlds: list[World], group: str, start: Start, control_plane: Cluster
) -> None:
    first, second = worlds
    start(first.namespace).await_running()
    lonely = site.condition("KVCacheGroup", group, "PoolsResolved", "False")
    assert lonely["message"].startswith(f"no operator that watches the namespace {second.namespace} has resolved")
    start(second.namespace).await_running()
    await_shared(site, group, worlds)
    instances = []
    for number, world in enumerate(worlds):
        token = engine_token(control_plane, world.namespace)
        instances.append(instance_name("acme", str(number) * 64))
        eventually(partial(is_admitted, site, f"{world.namespace}/engines"))
        register(site, token, instances[-1], zone_group(world.namespace, "demo", "acme"))
        write(site, token, instances[-1], "aa", "bb")
    assert set(reported(site, group)["zones"]) == {f"{each.namespace}/demo/acme" for each in worlds}
    site.condition("KVCacheGroup", group, "Ready", "True")
    held = sorted((world.namespace, 2 * SIZE) for world in worlds)

    def rows() -> list[tuple[str, int]]:
        return sorted((row["namespace"], row["held"]) for row in site.status("KVCacheGroup", group)["zones"])

    eventually(lambda: rows() == held)
    await_rest(site, group, operators=2)
    assert rows() == held

    # A restarted manager knows the declarations of both, and a pool that goes takes no other with it.
    site.manager.kill()
    site.manager.start()
    eventually(lambda: set(reported(site, group)["pools"]) == pools_of(worlds))
    await_rest(site, group, operators=2)
    first.kube.call("DELETE", first.pool_path)
    eventually(lambda: set(reported(site, group)["pools"]) == pools_of([second]))
    missing = site.condition("KVCacheGroup", group, "PoolsResolved", "False")
    assert missing["message"].startswith(f"ZonePool {first.namespace}/demo does not exist")
    assert set(reported(site, group)["zones"]) == {f"{second.namespace}/demo/acme"}
    # That evicted nothing of what its engines had stored.
    assert {each for each in instances if each in site.registered("ListInstances", "instance")} == set(instances)
    assert site.status("KVCacheGroup", group)["evictedBlocks"] == 0
    delete(site, group)
    assert group not in site.registered("ListInstanceGroups", "group")


def test_a_group_that_promises_something_in_both_shrinks_and_goes(
    site: ManagerSite, worlds: list[World], group: str, start: Start, control_plane: Cluster
) -> None:
    for world in worlds:
        start(world.namespace).await_running()
    await_shared(site, group, worlds)
    for number, world in enumerate(worlds):
        token = engine_token(control_plane, world.namespace)
        eventually(partial(is_admitted, site, f"{world.namespace}/engines"))
        name = instance_name("acme", f"{number + 2}" * 64)
        register(site, token, name, zone_group(world.namespace, "demo", "acme"))
        write(site, token, name, "aa", "bb")

    def floors() -> list[int]:
        return [each["FileSystem"]["reserved"] for each in reported(site, group).get("zones", {}).values()]

    def promise(size: int, limit: int) -> None:
        types = [{"type": "FileSystem", "reserved": size}]
        zones = [{"namespace": world.namespace, "name": "acme", "types": types} for world in worlds]
        site.change("KVCacheGroup", group, zones=zones, quota={"limit": limit})
        eventually(lambda: floors() == [size, size])

    promise(4 * SIZE, 8 * SIZE)
    promise(2 * SIZE, 4 * SIZE)
    site.condition("KVCacheGroup", group, "Ready", "True")
    delete(site, group)
    assert group not in site.registered("ListInstanceGroups", "group")


def test_an_operator_of_all_namespaces_takes_over_and_those_of_one_after_it(
    site: ManagerSite, worlds: list[World], group: str, start: Start
) -> None:
    first, second = worlds
    running = [start(world.namespace) for world in worlds]
    await_shared(site, group, worlds)
    running[0].kill()
    everywhere = start(None)
    everywhere.await_running()
    # One of the two keeps running.
    await_rest(site, group, operators=2)
    await_shared(site, group, worlds)
    running[1].kill()
    second.kube.call("DELETE", second.pool_path)
    await_shared(site, group, [first])
    everywhere.kill()
    start(first.namespace).await_running()
    first.kube.call("DELETE", first.pool_path)
    await_shared(site, group, [])
    delete(site, group)


def test_an_operator_speaks_for_no_other_namespace_than_its_account(
    site: ManagerSite, worlds: list[World], group: str, start: Start, control_plane: Cluster, tmp_path: Path
) -> None:
    own, other = worlds
    rightful = start(other.namespace)
    rightful.await_running()
    await_shared(site, group, [other])
    # It would be the first to report, so the others would have nothing to report.
    rightful.kill()
    token = engine_token(control_plane, own.namespace, "operator")
    (tmp_path / "token").write_text(token)
    site.manager.admit({f"{own.namespace}/operator": {"admin": True, "namespace": own.namespace}})
    for mistaken in (other.namespace, None):
        operator = start(mistaken, tmp_path / "token")
        whom = "all namespaces" if mistaken is None else f"the namespace {mistaken}"
        words = f"{own.namespace}/operator speaks for the namespace {own.namespace}, and not for {whom}"
        other.kube.merge(
            other.pool_path, {"spec": {"tiers": {"manager": {"serviceAccountName": f"x{mistaken}".lower()}}}}
        )
        eventually(partial(has_said, operator, words))
        operator.kill()
    start(own.namespace, tmp_path / "token").await_running()
    await_shared(site, group, worlds)
    delete(site, group)
