"""Engines that are too small, on a real API server: what was accepted stays, and the others continue."""

import pytest

from tests.operator.conftest import Operator
from tests.operator.kube import eventually
from tests.operator.world import World, conditions

pytestmark = pytest.mark.controlplane


def test_a_small_engine_takes_nothing_from_a_large_one(world: World):
    world.add_pool()
    world.add_zone("acme", reserved=400)
    world.await_ready_with_engine(blocks=1000)
    world.add_zone("beta", reserved=300)
    world.await_ready("acme", "beta")
    before = world.config()

    small = world.add_engine("small", blocks=500)

    degraded = world.await_condition("beta", "Degraded", "True", "EngineUnfit")
    assert degraded["message"] == "small has 500 blocks and lacks the 300 that the zone reserves"
    eventually(lambda: conditions(world.pool()).get("Degraded", {}).get("status") == "True")
    world.await_ready("acme", "beta")
    assert world.config() == before
    eventually(lambda: [(zone.name, zone.reserved) for zone in small.report().zones] == [("acme", 400), ("beta", 0)])
    rows = {row["pod"]: row for row in world.zone("beta")["status"]["engines"]}
    assert rows["small"]["message"] == "lacks the 300 blocks that the zone reserves"
    assert "message" not in rows["engine-0"]

    world.set_ready(small, False)
    eventually(lambda: "Degraded" not in conditions(world.zone("beta")))


@pytest.mark.parametrize("claim", [0, 1, 2**31 - 1])
def test_a_pod_that_lies_about_its_size_takes_nothing_from_anybody(world: World, claim: int):
    world.add_pool(blocksPerEngine=1000)
    world.add_zone("acme", reserved=400)
    world.add_zone("mixed", reserved=50, limit="10%")
    world.await_ready_with_engine(blocks=1000)
    world.await_ready("acme", "mixed")
    before = world.config()

    world.add_engine("mallory", blocks=claim)

    world.add_zone("late", reserved=500)
    world.await_condition("late", "Accepted", "True")
    world.add_zone("greedy", reserved=100)
    world.await_condition("greedy", "Accepted", "False", "PoolOvercommitted")
    world.await_ready("acme", "mixed", "late")
    assert before is not None
    config = world.config()
    assert config is not None
    assert config.zones[:2] == before.zones
    assert world.pool()["status"]["capacityBlocks"] == 1000


def test_a_replacement_that_is_a_little_smaller_takes_no_zone_away(world: World):
    world.add_pool()
    world.add_zone("acme", reserved=400)
    world.await_ready_with_engine(blocks=1000)
    world.add_zone("beta", reserved=600)
    world.await_ready("acme", "beta")
    (old,) = world.engines

    world.add_engine("replacement", blocks=990)
    world.set_ready(old, False)

    assert "no engine is large enough" in world.await_condition("beta", "Ready", "False", "EngineUnfit")["message"]
    world.await_ready("acme")
    assert world.entries() == {"acme": 400, "beta": 600}
    world.change_zone("beta", reserved=590)
    world.await_ready("acme", "beta")


def test_zones_from_before_the_first_engine_are_decided_again_by_priority_then_age(world: World):
    world.add_pool()
    for name, priority in (("older", 0), ("high", 5), ("younger", 0)):
        world.add_zone(name, reserved=500, priority=priority)
        world.await_condition(name, "Accepted", "True", "AcceptedProvisionally")

    world.add_engine(blocks=1000)

    world.await_condition("high", "Accepted", "True", "Accepted")
    world.await_condition("younger", "Accepted", "False", "PoolOvercommitted")
    world.await_ready("high", "older")
    assert set(world.entries()) == {"high", "older"}
    eventually(lambda: world.events("Overcommitted"))


def test_an_operator_that_starts_knows_what_was_granted_before_the_first_engine(world: World, operator: Operator):
    world.add_pool()
    world.add_zone("percent", reserved="60%")
    world.await_condition("percent", "Accepted", "True", "Accepted")
    world.add_zone("refused", reserved=1000)
    world.await_condition("refused", "Accepted", "True", "AcceptedProvisionally")
    world.change_zone("refused", reserved="50%")
    world.await_condition("refused", "Accepted", "False", "PoolOvercommitted")
    world.add_zone("high", reserved=300, priority=5)
    world.await_condition("high", "Accepted", "True", "AcceptedProvisionally")
    operator.kill()
    operator.start()
    operator.await_running()

    world.add_engine(blocks=1000)

    world.await_ready("percent", "high")
    world.await_condition("refused", "Accepted", "False", "PoolOvercommitted")
    assert set(world.entries()) == {"percent", "high"}
