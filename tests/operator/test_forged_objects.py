"""What other clients write into the operator's objects grants nothing and takes no reservation away."""

import base64
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from hack.controlplane import Cluster
from tenantzone_contract.zone_config.config import CONFIG_HASH_ANNOTATION, RuntimeConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.packing import config_map_data, pack_config
from tests.operator.conftest import Operator
from tests.operator.kube import Kube, eventually
from tests.operator.lease import NAMESPACE
from tests.operator.stolen_token import AS_MANAGER
from tests.operator.world import World, conditions, world_in

pytestmark = pytest.mark.controlplane

GRANTED = {"keeper": 10, "victim": 50}


OPERATOR_KEY = "tenantzone-operator-key"
SECRETS = {
    OPERATOR_KEY: ("key",),
    "tenantzone-admin-demo": ("token", "accepted"),
    "tenantzone-salt-demo": ("key",),
}
"""Those that the operator makes, with their keys."""
FALSE = base64.b64encode(b"5" * 64).decode()


def secret_path(world: World, name: str) -> str:
    namespace = NAMESPACE if name == OPERATOR_KEY else world.namespace
    return f"/api/v1/namespaces/{namespace}/secrets/{name}"


def contest(world: World) -> None:
    """An engine of 100 blocks with 60 granted: ``greedy`` and an increase of ``keeper`` are refused."""
    world.add_pool()
    world.add_zone("keeper", reserved=10)
    world.add_engine(blocks=100)
    world.await_ready("keeper")
    world.add_zone("victim", reserved=50)
    world.await_ready("victim")
    world.change_zone("keeper", reserved=90)
    world.await_condition("keeper", "Accepted", "False", "PoolOvercommitted")
    world.add_zone("greedy", reserved=80)
    world.await_condition("greedy", "Accepted", "False", "PoolOvercommitted")


@pytest.fixture
def contested(world: World) -> World:
    contest(world)
    return world


def config_of(world: World) -> RuntimeConfig:
    found = world.config()
    assert found is not None
    return found


def forged(config: RuntimeConfig, generation: int) -> RuntimeConfig:
    """A config with a valid hash that gives the victim's blocks to the zone ``greedy``."""
    keeper, victim = config.zones
    greedy = victim.model_copy(update={"name": "greedy", "tenant": "greedy", "reserved": 80})
    losers = (entry.model_copy(update={"reserved": 0}) for entry in (keeper, victim))
    return make_config(generation, config.pool, (greedy, *losers))


def overwrite(kube: Kube, world: World, config: RuntimeConfig) -> None:
    kube.merge(world.config_path, config_map_data(pack_config(config)))


def await_granted(world: World) -> RuntimeConfig:
    """The config, once it holds what was granted and the engine enforces it."""
    eventually(lambda: world.entries() == GRANTED)
    (engine,) = world.engines
    eventually(lambda: {zone.name: zone.reserved for zone in engine.report().zones} == GRANTED)
    world.await_ready("victim")
    for name in ("keeper", "greedy"):
        world.await_condition(name, "Accepted", "False", "PoolOvercommitted")
    return config_of(world)


def test_a_config_that_the_operator_did_not_write_is_replaced_by_one_above_it(
    contested: World, thief: Kube, operator: Operator
):
    granted = restored = config_of(contested)
    accepted = conditions(contested.zone("victim"))["Accepted"]

    for step in (0, 1, 1000):
        written = restored.generation + step
        overwrite(thief, contested, forged(granted, written))
        restored = await_granted(contested)
        assert (restored.generation, restored.hash) == (written + 1, granted.hash)
    assert conditions(contested.zone("victim"))["Accepted"] == accepted
    eventually(lambda: contested.pool()["status"]["configGeneration"] == restored.generation)
    assert "repairing the pool's ConfigMap: its config, generation" in operator.log
    assert_hash_on_a_pod_is_put_back(contested, thief)


def assert_hash_on_a_pod_is_put_back(world: World, thief: Kube) -> None:
    (engine,) = world.engines
    path = f"/api/v1/namespaces/{world.namespace}/pods/{engine.name}"
    false = {CONFIG_HASH_ANNOTATION: "sha256:" + 64 * "0"}
    thief.merge(path + AS_MANAGER, {"metadata": {"annotations": false}})
    # Else it takes until the next listing, a minute.
    world.kube.merge(world.config_path, {"metadata": {"labels": {"team": "shop"}}})

    def annotation() -> str:
        found = world.kube.get(path)
        assert found is not None
        return found["metadata"]["annotations"][CONFIG_HASH_ANNOTATION]

    eventually(lambda: annotation() == config_of(world).hash)


def write_forgery(kube: Kube, world: World) -> None:
    granted = config_of(world)
    overwrite(kube, world, forged(granted, granted.generation + 1))


def write_what_was_before(kube: Kube, world: World) -> None:
    """A config that was in force once, with less for the victim."""
    granted = config_of(world)
    keeper, victim = granted.zones
    less = (keeper, victim.model_copy(update={"reserved": 1, "generation": 0}))
    overwrite(kube, world, make_config(granted.generation - 1, granted.pool, less))


def write_statuses(kube: Kube, world: World) -> None:
    """As if only ``greedy`` had been accepted."""
    for name, is_accepted in (("victim", False), ("keeper", False), ("greedy", True)):
        found = world.zone(name)
        changed = [
            condition | {"status": str(is_accepted), "observedGeneration": found["metadata"]["generation"]}
            if condition["type"] == "Accepted"
            else condition
            for condition in found["status"]["conditions"]
        ]
        kube.merge(f"{world.zone_path(name)}/status", {"status": {"conditions": changed}})


def write_pool_status(kube: Kube, world: World) -> None:
    false = {"configHash": "sha256:" + 64 * "0", "configGeneration": -5, "capacityBlocks": 70}
    kube.merge(f"{world.pool_path}/status", {"status": false})


def write_no_config(kube: Kube, world: World) -> None:
    kube.merge(world.config_path, {"data": {"config.json": "{"}})


def delete_the_config(kube: Kube, world: World) -> None:
    kube.call("DELETE", world.config_path)


def write_secrets(kube: Kube, world: World) -> None:
    for name, keys in SECRETS.items():
        path, body = secret_path(world, name), {"data": dict.fromkeys(keys, FALSE)}
        if kube.get(path) is not None:
            kube.merge(path, body)
        else:
            kube.call("POST", path.rpartition("/")[0], body | {"metadata": {"name": name}})


def write_config_and_pool_status(kube: Kube, world: World) -> None:
    write_forgery(kube, world)
    written = config_of(world)
    status = {"configHash": written.hash, "configGeneration": written.generation}
    kube.merge(f"{world.pool_path}/status", {"status": status})


BESIDE_CONFIG_MAPS = {
    "statuses of zones": write_statuses,
    "the status of the pool": write_pool_status,
    "Secrets": write_secrets,
}
ON_CONFIG_MAPS = {
    "a forged config": write_forgery,
    "an older config": write_what_was_before,
    "no config": write_no_config,
    "a deleted ConfigMap": delete_the_config,
}
AT_ONCE = "a forged config and the status of the pool"
ATTACKS: dict[str, Callable[[Kube, World], None]] = {
    **BESIDE_CONFIG_MAPS,
    **ON_CONFIG_MAPS,
    AT_ONCE: write_config_and_pool_status,
}


@pytest.fixture(scope="module")
def attacked(control_plane: Cluster, kube: Kube, operator: Operator) -> Iterator[dict[str, World]]:
    """A namespace for each attack, made while no operator runs; then one starts."""
    names = {attack: f"attacked-{secrets.token_hex(4)}" for attack in ATTACKS}
    for name in names.values():
        control_plane.create_namespace(name)
    try:
        with ExitStack() as stack:
            worlds = {
                attack: stack.enter_context(world_in(control_plane, kube, name)) for attack, name in names.items()
            }
            for world in worlds.values():
                contest(world)
            operator.kill()
            for attack, world in worlds.items():
                ATTACKS[attack](kube, world)
            operator.start()
            operator.await_running()
            yield worlds
            for world in worlds.values():
                world.delete_everything()
    finally:
        # An operator that starts later would see to what is left.
        for name in names.values():
            control_plane.delete_namespace(name)


@pytest.mark.parametrize("attack", BESIDE_CONFIG_MAPS)
def test_after_a_restart_the_config_map_is_believed_whatever_was_written_into(attacked: dict[str, World], attack: str):
    await_granted(attacked[attack])


def test_of_the_secrets_that_it_made_the_operator_changes_none_back(attacked: dict[str, World], kube: Kube):
    world = attacked["Secrets"]
    await_granted(world)

    for name, keys in SECRETS.items():
        found = kube.get(secret_path(world, name))
        assert found is not None
        assert found["data"] == dict.fromkeys(keys, FALSE)


def test_who_writes_both_while_no_operator_leads_grants_what_specs_ask_for_and_no_more(attacked: dict[str, World]):
    """This is what is left: no third object says which of the two came first."""
    world = attacked[AT_ONCE]

    world.await_condition("victim", "Accepted", "False", "PoolOvercommitted")
    world.await_ready("greedy")
    assert world.entries() == {"greedy": 80, "keeper": 0, "victim": 0}


@pytest.mark.parametrize("attack", ON_CONFIG_MAPS)
def test_after_a_restart_statuses_and_specs_are_believed_whatever_the_config_map_has(
    attacked: dict[str, World], attack: str
):
    world = attacked[attack]

    eventually(lambda: world.entries().get("victim") == 50)
    world.await_ready("victim")
    world.await_condition("greedy", "Accepted", "False", "PoolOvercommitted")
    assert "greedy" not in world.entries()
    world.change_zone("keeper", reserved=50)
    world.await_ready("keeper", "victim")
