"""Pools with so many zones that their config must be compressed, and with more than a ConfigMap holds."""

import base64
import json
import os
import random
import string
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tenantzone_contract.zone_config.packing import PACKED_KEY, files_of
from tests.operator.conftest import Operator
from tests.operator.kube import Kube, eventually
from tests.operator.world import World, conditions

_SMALL = """
from tenantzone_contract.zone_config import packing
from tenantzone_operator.planning import config_room
packing.MAX_PLAIN_BYTES = 5_000
config_room.NEW_ZONES_BYTES = 2_750
config_room.CHANGES_BYTES = 3_250
"""
"""Here some dozens of zones have the effect of thousands."""

pytestmark = pytest.mark.controlplane

_AT_ONCE = 8


class Small(Operator):
    """An operator for which a ConfigMap is small."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        super().__init__(kubeconfig, folder / "operator.log")
        (folder / "sitecustomize.py").write_text(_SMALL)
        self._python_path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])

    def start(self, **environment: str) -> None:
        super().start(PYTHONPATH=self._python_path, **environment)


@pytest.fixture(scope="module")
def operator(operator_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    running = Small(operator_kubeconfig, tmp_path_factory.mktemp("small"))
    running.start()
    running.await_running()
    yield running
    assert running.stop() == 0
    assert "Traceback" not in running.log, running.log


def add_zones(world: World, *numbers: int) -> list[str]:
    """Adds zones of tenants whose names hardly compress."""
    rng, names = random.Random(numbers[0]), [f"zone-{number:03}" for number in numbers]
    tenants = ["".join(rng.choices(string.ascii_lowercase + string.digits, k=50)) for _ in names]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(
            threads.map(
                lambda pair: world.add_zone(pair[0], tenant=pair[1], reserved=1), zip(names, tenants, strict=True)
            )
        )
    return names


def stored(world: World) -> dict[str, Any]:
    found = world.kube.get(world.config_path)
    assert found is not None
    return found


def version(world: World) -> int:
    return json.loads(stored(world)["data"]["config.json"])["schemaVersion"]


def refused(world: World, names: list[str]) -> set[str]:
    """The zones that wait for room, once each has a decision in its current generation."""

    def look() -> set[str]:
        found = set()
        for name in names:
            zone = world.zone(name)
            accepted = conditions(zone)["Accepted"]
            assert accepted["observedGeneration"] == zone["metadata"]["generation"]
            if accepted["status"] != "True":
                assert accepted["reason"] == "ConfigTooLarge", accepted
                found.add(name)
        return found

    return eventually(lambda: (look(),))[0]


def test_a_config_that_outgrows_plain_text_is_compressed_and_is_plain_again_when_zones_go(world: World):
    world.add_pool()
    world.add_engine(blocks=1000)
    few = add_zones(world, *range(5))
    world.await_ready(*few)
    assert version(world) == 1
    more = add_zones(world, *range(10, 30))
    world.await_ready(*few, *more)
    assert version(world) == 2
    status = world.pool()["status"]
    assert status["configBytes"] == files_of(stored(world)).size

    for name in more:
        world.kube.call("DELETE", world.zone_path(name))

    eventually(lambda: version(world) == 1)
    assert PACKED_KEY not in stored(world).get("binaryData", {})
    world.await_ready(*few)


def test_a_compressed_config_outlives_the_operator_and_is_repaired(world: World, operator: Operator, kube: Kube):
    world.add_pool()
    engine = world.add_engine(blocks=1000)
    names = add_zones(world, *range(25))
    world.await_ready(*names)
    before = stored(world)

    operator.kill()
    operator.start()
    operator.await_running()
    world.change_zone(names[0], reserved=2)
    world.await_ready(names[0])
    generation = world.config().generation
    assert generation == json.loads(before["data"]["config.json"])["generation"] + 1

    kube.merge(world.config_path, {"binaryData": {PACKED_KEY: base64.b64encode(b"damaged").decode()}})
    engine.sync()

    eventually(lambda: len(world.entries()) == 25)
    engine.sync()
    world.await_ready(*names)


def test_zones_that_are_too_many_are_refused_alone_and_legal_updates_freeze_no_zone(world: World):
    world.add_pool()
    world.add_engine(blocks=1000)
    first = add_zones(world, *range(30))
    world.await_ready(*first)
    second = add_zones(world, *range(100, 150))
    waiting = refused(world, second)
    assert 0 < len(waiting) < 50
    accepted = [*first, *(name for name in second if name not in waiting)]
    world.await_ready(*accepted)
    assert set(world.entries()) == set(accepted)
    world.change_zone(accepted[0], reserved=2)
    world.await_ready(accepted[0])

    # Each change alone is valid, and together they need more room than there is.
    rng = random.Random(5)
    for name in accepted:
        lending = {"maxLoan": f"{rng.randrange(10**7)}s", "grace": f"{rng.randrange(10**7)}s"}
        idle = {"after": f"{rng.randrange(10**7)}s"}
        world.change_zone(name, weight=rng.randrange(1, 10**4), lending=lending, idle=idle)

    late = refused(world, accepted)
    assert 0 < len(late) < len(accepted)
    for name in late:
        message = conditions(world.zone(name))["Accepted"]["message"]
        assert "stays in force" in message
    assert set(world.entries()) == set(accepted), "what was accepted stays"
    world.await_ready(*(name for name in accepted if name not in late))

    gone = [name for name in accepted if name not in late][:15]
    for name in gone:
        world.kube.call("DELETE", world.zone_path(name))
    world.await_ready(*late)
