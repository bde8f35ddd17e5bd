"""A config that the operator did not sign never takes effect in an engine that demands signatures."""

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from tenantzone_contract.keys.admin_token import ACCEPTED_FILE, admin_secret_name, new_admin_key
from tenantzone_contract.reports.report import AdminPortStatus
from tenantzone_contract.zone_config.config import MAX_GENERATION
from tenantzone_contract.zone_config.config_signature import SIGNATURE_KEY, sign_config
from tenantzone_contract.zone_config.packing import config_map_data, pack_config
from tenantzone_contract.zone_config.specs import Body
from tenantzone_runtime.admin_port.admin_access import AdminTokens
from tenantzone_runtime.reload import ConfigSource
from tests.operator.conftest import Operator
from tests.operator.kube import Kube, eventually
from tests.operator.test_forged_objects import GRANTED, config_of, contest, forged
from tests.operator.world import World
from tests.runtime.folders import project

pytestmark = pytest.mark.controlplane


def found(kube: Kube, path: str) -> Body:
    body = kube.get(path)
    assert body is not None
    return body


class Mounted:
    """What an engine reads that mounts the pool's ConfigMap and its admin Secret, and demands signatures."""

    def __init__(self, world: World, kube: Kube, folder: Path) -> None:
        self._world, self._kube, self._folder = world, kube, folder
        (engine,) = world.engines
        # Else the operator need not make the Secret.
        engine.admin_port = AdminPortStatus(error="accepted is not in the folder")
        path = f"/api/v1/namespaces/{world.namespace}/secrets/{admin_secret_name('demo')}"
        secret = eventually(lambda: found(kube, path))
        engine.admin_port = AdminPortStatus()
        project(folder / "admin", {ACCEPTED_FILE: base64.b64decode(secret["data"][ACCEPTED_FILE])})
        self.source = ConfigSource(folder / "config", tokens=AdminTokens(folder / "admin").read)

    def mount(self, config_map: Body) -> None:
        """What kubelet does with the ConfigMap, and the engine's look at it."""
        text = {name: content.encode() for name, content in config_map["data"].items()}
        binary = {name: base64.b64decode(content) for name, content in config_map.get("binaryData", {}).items()}
        project(self._folder / "config", text | binary)
        self.source.poll()

    def reservations(self) -> dict[str, int | str]:
        assert self.source.config is not None
        return {entry.name: entry.reserved for entry in self.source.config.zones}

    def await_granted(self, generation: int) -> None:
        """Until it has read what the operator wrote in this generation or a later one."""

        def look() -> bool:
            self.mount(found(self._kube, self._world.config_path))
            assert self.source.rejection is None
            assert self.source.config is not None
            assert self.source.config.generation >= generation
            assert self.reservations() == GRANTED
            return True

        eventually(look)


@pytest.fixture
def mounted(world: World, kube: Kube, tmp_path: Path) -> Mounted:
    contest(world)
    made = Mounted(world, kube, tmp_path)
    made.await_granted(1)
    return made


def signed_by_thief(world: World, data: dict[str, dict[str, str]]) -> bytes:
    token = base64.urlsafe_b64encode(new_admin_key()).decode().rstrip("=")
    files = {"config.json": data["data"]["config.json"].encode()}
    return sign_config(files, [token], world.pool()["metadata"]["creationTimestamp"])


def keep(_: World, __: dict[str, dict[str, str]]) -> dict[str, str | None]:
    return {}


def take_off(_: World, __: dict[str, dict[str, str]]) -> dict[str, str | None]:
    return {SIGNATURE_KEY: None}


def sign(world: World, data: dict[str, dict[str, str]]) -> dict[str, str | None]:
    return {SIGNATURE_KEY: base64.b64encode(signed_by_thief(world, data)).decode()}


@pytest.mark.parametrize("change", [keep, take_off, sign])
@pytest.mark.parametrize("step", [0, 1, 1000])
def test_a_forged_config_never_takes_effect(
    world: World,
    thief: Kube,
    mounted: Mounted,
    change: Callable[[World, dict[str, dict[str, str]]], dict[str, str | None]],
    step: int,
):
    granted = config_of(world)
    data = config_map_data(pack_config(forged(granted, granted.generation + step)))
    body = {"data": data["data"], "binaryData": data["binaryData"] | change(world, data)}

    mounted.mount(thief.merge(world.config_path, body))

    assert mounted.reservations() == GRANTED
    assert mounted.source.rejection is not None
    assert mounted.source.rejection.untrusted
    mounted.await_granted(granted.generation + step + 1)


def test_a_config_that_was_in_force_once_never_takes_effect_again(
    world: World, thief: Kube, kube: Kube, mounted: Mounted
):
    before = found(kube, world.config_path)
    world.delete_zone("greedy")
    world.change_zone("victim", reserved=40)
    eventually(lambda: world.entries()["victim"] == 40)
    mounted.mount(found(kube, world.config_path))
    present = mounted.source.config
    assert present is not None

    mounted.mount(thief.merge(world.config_path, {"data": before["data"], "binaryData": before["binaryData"]}))

    assert mounted.source.config is present
    assert mounted.source.rejection is not None
    assert mounted.source.rejection.untrusted
    assert "it is older than the signed config" in mounted.source.rejection.error

    def restored() -> bool:
        mounted.mount(found(kube, world.config_path))
        return mounted.source.rejection is None

    eventually(restored)
    assert mounted.reservations()["victim"] == 40


@pytest.mark.parametrize("signature", [None, base64.b64encode(b"none").decode()])
def test_a_signature_that_is_removed_or_spoiled_is_put_back_in_the_same_generation(
    world: World, thief: Kube, kube: Kube, mounted: Mounted, signature: str | None
):
    granted = found(kube, world.config_path)

    mounted.mount(thief.merge(world.config_path, {"binaryData": {SIGNATURE_KEY: signature}}))

    assert mounted.source.rejection is not None
    assert mounted.source.rejection.untrusted

    def restored() -> bool:
        present = found(kube, world.config_path)
        return (present["data"], present.get("binaryData")) == (granted["data"], granted["binaryData"])

    eventually(restored)
    mounted.await_granted(config_of(world).generation)


def test_after_a_restart_the_operator_signs_with_the_same_key(
    world: World, kube: Kube, mounted: Mounted, operator: Operator
):
    operator.kill()
    operator.start()
    operator.await_running()
    world.change_zone("keeper", reserved=20)
    world.await_condition("keeper", "Ready", "True")

    mounted.mount(found(kube, world.config_path))

    assert mounted.source.rejection is None
    assert mounted.reservations() == GRANTED | {"keeper": 20}


@pytest.mark.parametrize("generation", [1, MAX_GENERATION // 2 - 1])
def test_a_generation_that_others_write_while_no_operator_leads_keeps_no_engine_from_changes(
    world: World, thief: Kube, kube: Kube, mounted: Mounted, operator: Operator, generation: int
):
    operator.kill()
    forged_generation = config_of(world).model_copy(update={"generation": generation})
    mounted.mount(thief.merge(world.config_path, config_map_data(pack_config(forged_generation))))
    assert mounted.source.rejection is not None
    operator.start()
    mounted.await_granted(1)
    world.change_zone("keeper", reserved=20)
    world.await_condition("keeper", "Ready", "True")

    # This leader reads what the one before it wrote above the forged generation.
    operator.kill()
    operator.start()
    operator.await_running()
    world.change_zone("keeper", reserved=30)
    world.await_condition("keeper", "Ready", "True")

    mounted.mount(found(kube, world.config_path))
    assert mounted.source.rejection is None
    assert mounted.reservations() == GRANTED | {"keeper": 30}


def test_engines_get_changes_though_config_and_status_were_both_lowered_while_no_operator_led(
    world: World, kube: Kube, mounted: Mounted, operator: Operator
):
    (engine,) = world.engines
    engine.refuses_older = True
    before = found(kube, world.config_path)
    for reserved in (20, 30, 25):
        world.change_zone("keeper", reserved=reserved)
        world.await_condition("keeper", "Ready", "True")
    mounted.mount(found(kube, world.config_path))
    known = config_of(world).generation
    operator.kill()

    # As a backup that is restored does.
    kube.merge(world.config_path, {"data": before["data"], "binaryData": before["binaryData"]})
    lowered = config_of(world)
    status = {"configGeneration": lowered.generation, "configHash": lowered.hash}
    kube.merge(f"{world.pool_path}/status", {"status": status})
    mounted.mount(found(kube, world.config_path))
    assert mounted.source.rejection is not None
    operator.start()
    world.change_zone("keeper", reserved=15)
    eventually(lambda: config_of(world).generation > known)
    # The pod's annotation has no generation, so kubelet looks at its usual time.
    engine.sync()
    world.await_condition("keeper", "Ready", "True")

    mounted.mount(found(kube, world.config_path))
    assert mounted.source.rejection is None
    assert mounted.reservations() == GRANTED | {"keeper": 15}
