"""A program that uses the official client creates, changes, watches and deletes a zone."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client, config, watch

from tenantzone_contract.kube_names import GROUP, VERSION, ZONES
from tests.operator.world import POOL, World

pytestmark = pytest.mark.controlplane

SECONDS = 90


@pytest.fixture
def zones(world: World) -> Iterator[client.CustomObjectsApi]:
    """The official client, with the kubeconfig of the cluster's administrator."""
    with config.new_client_from_config(str(world.cluster.kubeconfig), persist_config=False) as connection:
        yield client.CustomObjectsApi(connection)


def await_event(
    zones: client.CustomObjectsApi, world: World, since: dict[str, Any], is_met: Callable[[dict[str, Any]], bool]
) -> None:
    """Watches the namespace's zones until an event meets a condition.

    Args:
        zones: the official client.
        world: the namespace.
        since: the object whose later events count.
        is_met: the condition.

    Raises:
        AssertionError: no event met the condition in time.
    """
    watcher = watch.Watch()
    where = (GROUP, VERSION, world.namespace, ZONES)
    version = since["metadata"]["resourceVersion"]
    stream = watcher.stream(
        zones.list_namespaced_custom_object, *where, resource_version=version, timeout_seconds=SECONDS
    )
    for event in stream:
        if is_met(event):
            watcher.stop()
            return
    raise AssertionError(f"no such event within {SECONDS} s")


def is_programmed(event: dict[str, Any], generation: int) -> bool:
    conditions = event["object"].get("status", {}).get("conditions", [])
    return any(
        (each["type"], each["status"], each.get("observedGeneration")) == ("Programmed", "True", generation)
        for each in conditions
    )


def test_a_zone_lives_from_its_creation_to_its_deletion(world: World, zones: client.CustomObjectsApi):
    world.add_pool()
    engine = world.add_engine()
    where = (GROUP, VERSION, world.namespace, ZONES)
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "TenantZone",
        "metadata": {"name": "acme"},
        "spec": {"pool": POOL, "reserved": 10},
    }

    created = zones.create_namespaced_custom_object(*where, body)
    await_event(zones, world, created, lambda event: is_programmed(event, created["metadata"]["generation"]))
    assert [(zone.name, zone.reserved) for zone in engine.report().zones] == [("acme", 10)]

    changed = zones.patch_namespaced_custom_object(*where, "acme", {"spec": {"reserved": 20}})
    await_event(zones, world, changed, lambda event: is_programmed(event, changed["metadata"]["generation"]))
    assert [(zone.name, zone.reserved) for zone in engine.report().zones] == [("acme", 20)]

    zones.delete_namespaced_custom_object(*where, "acme")
    await_event(zones, world, changed, lambda event: event["type"] == "DELETED")
    with pytest.raises(client.ApiException, match="NotFound"):
        zones.get_namespaced_custom_object(*where, "acme")


def test_an_invalid_zone_is_refused_with_an_error_that_the_client_shows(world: World, zones: client.CustomObjectsApi):
    where = (GROUP, VERSION, world.namespace, ZONES)
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "TenantZone",
        "metadata": {"name": "acme"},
        "spec": {"pool": POOL, "reserved": 20, "limit": 10},
    }

    with pytest.raises(client.ApiException, match="limit") as caught:
        zones.create_namespaced_custom_object(*where, body)

    assert caught.value.status == 422
