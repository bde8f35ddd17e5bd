"""The owner of the ConfigMap: ours is repaired at once, and any other's is left alone."""

import base64
import json
from typing import Any

import pytest

from tenantzone_contract.kube_names import OPERATOR
from tenantzone_operator.kube.config_map import MANAGED_BY_LABEL, POOL_LABEL
from tests.operator.conftest import Operator
from tests.operator.kube import Kube, eventually
from tests.operator.world import POOL, World, conditions

pytestmark = pytest.mark.controlplane

LABELS = {MANAGED_BY_LABEL: OPERATOR, POOL_LABEL: POOL}


@pytest.fixture
def ready(world: World) -> World:
    """A pool whose one engine enforces one zone."""
    world.add_pool()
    world.add_zone("acme", reserved="10%")
    world.add_engine()
    world.await_ready("acme")
    return world


def metadata(kube: Kube, world: World) -> dict[str, Any]:
    found = kube.get(world.config_path)
    assert found is not None
    return found["metadata"]


def uid_of_pool(kube: Kube, world: World) -> str:
    found = kube.get(world.pool_path)
    assert found is not None
    return found["metadata"]["uid"]


def is_in_order(kube: Kube, world: World) -> bool:
    found = metadata(kube, world)
    owners = [owner["uid"] for owner in found.get("ownerReferences", [])]
    return LABELS.items() <= found.get("labels", {}).items() and owners == [uid_of_pool(kube, world)]


def test_a_config_map_goes_with_its_pool_and_says_whose_it_is(ready: World, kube: Kube):
    assert is_in_order(kube, ready)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"labels": None}, id="labels"),
        pytest.param({"ownerReferences": None}, id="owners"),
        pytest.param({"labels": None, "ownerReferences": None}, id="both"),
        pytest.param({"labels": {POOL_LABEL: "other"}}, id="another pool"),
    ],
)
def test_what_is_taken_off_by_hand_is_put_back(ready: World, kube: Kube, change: dict[str, Any]):
    kube.merge(ready.config_path, {"metadata": change})
    eventually(lambda: is_in_order(kube, ready))


def test_labels_that_others_have_put_on_stay(ready: World, kube: Kube):
    kube.merge(ready.config_path, {"metadata": {"labels": {"team": "shop"}}})
    ready.change_zone("acme", reserved="20%")
    ready.await_ready("acme")

    found = kube.get(ready.config_path)
    assert found is not None
    assert found["metadata"]["labels"]["team"] == "shop"


@pytest.mark.parametrize(
    ("field", "content"),
    [
        pytest.param("data", "x" * 900_000, id="text"),
        pytest.param("binaryData", base64.b64encode(b"x" * 900_000).decode(), id="binary"),
    ],
)
def test_what_others_have_put_in_takes_no_room_from_the_config(ready: World, kube: Kube, field: str, content: str):
    kube.merge(ready.config_path, {field: {"notes": content}})

    def is_alone() -> bool:
        found = kube.get(ready.config_path)
        return found is not None and "notes" not in found.get(field, {})

    eventually(is_alone)
    ready.change_zone("acme", reserved="20%")
    ready.await_ready("acme")


def test_one_that_is_deleted_is_made_again(ready: World, kube: Kube):
    kube.call("DELETE", ready.config_path)
    eventually(lambda: kube.get(ready.config_path) is not None)
    eventually(lambda: is_in_order(kube, ready))


def test_a_pool_that_is_made_again_owns_it(ready: World, kube: Kube):
    old = uid_of_pool(kube, ready)
    kube.call("DELETE", ready.pool_path)
    ready.await_condition("acme", "Accepted", "False", "PoolNotFound")
    ready.add_pool()

    ready.await_ready("acme")
    assert uid_of_pool(kube, ready) != old
    eventually(lambda: is_in_order(kube, ready))


@pytest.mark.parametrize("generation", [2**52 - 1, 2**52, 2**63])
def test_what_was_granted_is_remembered_whatever_generation_another_client_writes(
    world: World, kube: Kube, operator: Operator, generation: int
):
    world.add_pool()
    world.add_engine(blocks=100)
    world.add_zone("older", reserved=10)
    world.await_ready("older")
    world.add_zone("younger", reserved=60)
    world.await_ready("younger")
    world.change_zone("older", reserved=90)
    world.await_condition("older", "Accepted", "False", "PoolOvercommitted")

    operator.kill()
    edited = json.loads(kube.get(world.config_path)["data"]["config.json"]) | {"generation": generation}
    kube.merge(world.config_path, {"data": {"config.json": json.dumps(edited)}})
    operator.start()
    operator.await_running()

    world.change_zone("younger", reserved=61)
    world.await_ready("younger")
    assert world.entries() == {"older": 10, "younger": 61}
    config = world.config()
    assert config is not None
    assert config.generation < 1000


@pytest.mark.parametrize("generation", [2**63, 2**62, 10**30])
def test_a_generation_that_another_client_has_written_is_not_continued(ready: World, kube: Kube, generation: int):
    config = ready.config()
    assert config is not None
    edited = json.loads(kube.get(ready.config_path)["data"]["config.json"]) | {"generation": generation}
    kube.merge(ready.config_path, {"data": {"config.json": json.dumps(edited)}})

    def is_repaired() -> bool:
        found = ready.config()
        return found is not None and found.generation < 1000

    eventually(is_repaired)
    ready.change_zone("acme", reserved="20%")
    ready.await_ready("acme")


def test_nor_is_one_in_the_status(ready: World, kube: Kube):
    kube.merge(f"{ready.pool_path}/status", {"status": {"configGeneration": 2**62}})
    ready.change_zone("acme", reserved="20%")
    ready.await_ready("acme")
    eventually(lambda: ready.pool()["status"]["configGeneration"] < 1000)


def test_a_size_of_engines_that_another_client_writes_into_the_status_is_not_believed(world: World, kube: Kube):
    world.add_pool()
    world.add_zone("acme", reserved=500)
    world.await_condition("acme", "Accepted", "True")

    kube.merge(f"{world.pool_path}/status", {"status": {"capacityBlocks": 10}})
    world.add_zone("burst", reserved=500)

    world.await_condition("burst", "Accepted", "True")


def test_a_foreign_config_map_is_left_alone_until_it_is_gone(world: World, kube: Kube):
    name = world.config_path.rpartition("/")[2]
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"config.json": "theirs"}}
    kube.call("POST", world.config_path.rpartition("/")[0], theirs)
    world.add_pool()
    world.add_zone("acme", reserved="10%")
    world.add_engine()

    message = world.await_condition("acme", "Programmed", "False", "ConfigNotWritten")["message"]
    assert f"the ConfigMap {name} does not belong to the operator" in message
    found = kube.get(world.config_path)
    assert found is not None
    assert (found["data"], found["metadata"].get("labels"), found["metadata"].get("ownerReferences")) == (
        {"config.json": "theirs"},
        None,
        None,
    )
    kube.call("DELETE", world.config_path)
    world.await_ready("acme")


def test_a_zone_that_a_finalizer_holds_after_its_end_is_not_ready_any_more(ready: World, kube: Kube):
    path = ready.zone_path("acme")
    kube.merge(path, {"metadata": {"finalizers": ["example.com/held"]}})
    ready.delete_zone("acme")

    assert "a finalizer delays the" in ready.await_condition("acme", "Accepted", "False", "Deleting")["message"]
    ready.await_condition("acme", "Ready", "False", "NotAccepted")
    assert ready.entries() == {}
    kube.merge(path, {"metadata": {"finalizers": None}})
    eventually(lambda: kube.get(path) is None)


def test_a_pool_that_a_finalizer_holds_after_its_end_says_so_and_so_do_its_zones(ready: World, kube: Kube):
    for path in (ready.pool_path, ready.zone_path("acme")):
        kube.merge(path, {"metadata": {"finalizers": ["example.com/held"]}})
    ready.add_zone("staying", reserved="5%")
    ready.await_ready("staying")
    kube.call("DELETE", ready.pool_path)
    ready.delete_zone("acme")

    def reasons() -> dict[str, tuple[str, str]]:
        found = conditions(ready.pool())
        return {kind: (condition["status"], condition["reason"]) for kind, condition in found.items()}

    gone = {
        "Accepted": ("False", "Deleting"),
        "Programmed": ("False", "NotAccepted"),
        "Ready": ("False", "NotAccepted"),
    }
    eventually(lambda: reasons() == gone)
    status = ready.pool()["status"]
    assert "a finalizer delays the deletion" in status["message"]
    assert "enginesReady" not in status, "an old number would pass for a new one"
    ready.await_condition("acme", "Accepted", "False", "Deleting")
    ready.await_condition("staying", "Accepted", "False", "PoolNotFound")
    kube.merge(ready.zone_path("acme"), {"metadata": {"finalizers": None}})
    kube.merge(ready.pool_path, {"metadata": {"finalizers": None}})
    eventually(lambda: kube.get(ready.pool_path) is None)
    ready.add_pool()
    ready.await_ready("staying")


def test_a_transition_time_that_another_client_has_written_is_put_back(ready: World, kube: Kube):
    before = ready.zone("acme")["status"]["conditions"]
    edited = [condition | {"lastTransitionTime": "2000-01-01T00:00:00Z"} for condition in before]
    kube.merge(f"{ready.zone_path('acme')}/status", {"status": {"conditions": edited}})
    eventually(lambda: ready.zone("acme")["status"]["conditions"] == before)
