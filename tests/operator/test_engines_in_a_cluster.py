"""Which pods are a pool's engines, and the status of engines that refuse or are away."""

import pytest

from tests.operator.kube import eventually
from tests.operator.world import POOL, World, conditions

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


def test_a_pod_that_two_pools_select_belongs_to_the_older(world: World):
    world.add_pool()
    world.add_zone("acme")
    engine = world.add_engine()
    world.await_ready("acme")

    world.add_pool("younger", selector={"matchLabels": {"pool": POOL}})

    eventually(lambda: conditions(world.pool("younger"))["Programmed"]["reason"] == "EnginesOfAnotherPool")
    shared = f"{engine.name}: selected by this pool and by ZonePool"
    younger = conditions(world.pool("younger"))
    assert younger["Ready"]["message"] == f"{shared} {POOL}, which is older and owns them"
    assert younger["SelectorOverlaps"]["reason"] == "PodsSelectedTwice"
    eventually(lambda: "SelectorOverlaps" in conditions(world.pool()))
    assert f"{shared} younger, which is younger" in conditions(world.pool())["SelectorOverlaps"]["message"]
    world.add_zone("beta", pool="younger")
    message = world.await_condition("beta", "Ready", "False", "EnginesOfAnotherPool")["message"]
    assert message == f"ZonePool younger has no engines. {shared} {POOL}, which is older and owns them"
    assert [zone.name for zone in engine.report().zones] == ["acme"]
    world.kube.call("DELETE", world.pool_path)
    eventually(lambda: world.pool("younger")["status"]["enginesReady"] == 1)
    eventually(lambda: "SelectorOverlaps" not in conditions(world.pool("younger")))


def test_another_selector_is_another_set_of_engines(world: World):
    world.add_pool()
    world.add_zone("acme", reserved="10%")
    before = world.add_engine()
    world.await_ready("acme")

    after = world.add_engine("engine-1", pool="another", blocks=200)
    world.kube.merge(world.pool_path, {"spec": {"selector": {"matchLabels": {"pool": "another"}}}})
    eventually(lambda: world.pool()["status"]["capacityBlocks"] == 200)
    eventually(lambda: [row["pod"] for row in world.zone("acme")["status"]["engines"]] == [after.name])
    polls = before.polls
    world.await_condition("acme", "Programmed", "Unknown", "Pending")
    goal = after.polls + 3
    eventually(lambda: after.polls >= goal)
    assert before.polls == polls, "the engine that left is not polled"


def test_a_pod_whose_labels_change_is_no_engine_until_they_change_back(world: World):
    world.add_pool()
    world.add_zone("acme")
    engine = world.add_engine()
    world.await_ready("acme")

    path = f"/api/v1/namespaces/{world.namespace}/pods/{engine.name}"
    world.kube.merge(path, {"metadata": {"labels": {"pool": "another"}}})
    world.await_condition("acme", "Programmed", "False", "NoEngines")
    world.kube.merge(path, {"metadata": {"labels": {"pool": POOL}}})
    world.await_ready("acme")
