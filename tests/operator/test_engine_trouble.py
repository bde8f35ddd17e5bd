"""Engines that refuse, or are away, and what the status says of them meanwhile."""

import pytest

from tests.operator.kube import eventually
from tests.operator.world import World

pytestmark = pytest.mark.controlplane


def test_a_refused_config_shows_the_engines_own_error(world: World):
    with world.refusing("zones[0].reserved: not today") as engine:
        message = world.await_condition("acme", "Programmed", "False", "ConfigRejected")["message"]
        assert "zones[0].reserved: not today" in message
        assert engine.name in message


def test_an_engine_that_stops_answering_is_unknown_until_it_is_back(world: World):
    world.add_pool()
    world.add_zone("acme")
    engine = world.add_engine()
    engine.cached["acme"] = 3
    world.await_ready("acme")
    eventually(lambda: world.zone("acme")["status"].get("held") == 3)

    engine.hang_up()

    assert engine.name in world.await_condition("acme", "Ready", "Unknown", "EngineUnreachable")["message"]
    status = world.zone("acme")["status"]
    assert "held" not in status, "an old number would pass for a new one"
    engine.come_back()
    world.await_ready("acme")


def test_a_pod_that_is_not_ready_does_not_count(world: World):
    world.add_pool()
    world.add_zone("acme")
    leaving, staying = world.add_engine("engine-0"), world.add_engine("engine-1")
    world.await_ready("acme")

    leaving.hang_up()
    world.set_ready(leaving, False)

    eventually(lambda: [row["pod"] for row in world.zone("acme")["status"].get("engines", [])] == [staying.name])
    world.await_ready("acme")


def test_a_zone_deleted_while_the_engines_are_down_is_gone_when_they_are_back(world: World):
    world.add_pool()
    world.add_zone("acme")
    world.add_zone("burst", reserved="10%")
    engine = world.add_engine()
    world.await_ready("acme", "burst")
    engine.hang_up()
    world.set_ready(engine, False)
    world.await_condition("acme", "Programmed", "False", "NoEngines")

    world.delete_zone("burst")
    eventually(lambda: world.entries().keys() == {"acme"})
    engine.come_back()
    world.set_ready(engine, True)

    world.await_ready("acme")
    assert [zone.name for zone in engine.report().zones] == ["acme"]
