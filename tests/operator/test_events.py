"""What a person notices without looking for it, on a real API server."""

from typing import Any

import pytest

from tests.operator.kube import eventually
from tests.operator.world import World, conditions

pytestmark = pytest.mark.controlplane


def the_only(world: World, reason: str) -> dict[str, Any]:
    eventually(lambda: world.events(reason))
    (event,) = world.events(reason)
    return event


def test_a_zone_that_does_not_fit_is_an_event_and_its_neighbours_changes_are_none(world: World):
    world.add_pool()
    world.add_engine(blocks=100)
    world.add_zone("acme", reserved="40%")
    world.await_ready("acme")
    world.add_zone("greedy", reserved="80%")

    event = the_only(world, "Overcommitted")
    assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("TenantZone", "greedy")
    assert event["regarding"]["uid"] == world.zone("greedy")["metadata"]["uid"]
    assert event["type"] == "Warning"
    assert "20 too few" in event["note"]
    shown = world.kubectl("events", "--for=tenantzone/greedy").stdout
    assert "Overcommitted" in shown
    world.change_zone("acme", reserved="50%")
    eventually(lambda: "30 too few" in world.zone("greedy")["status"]["message"])
    assert len(world.events("Overcommitted")) == 1


def test_a_zone_that_is_refused_for_another_reason_is_an_event_too(world: World):
    world.add_pool()
    world.add_zone("acme")
    eventually(lambda: conditions(world.zone("acme"))["Accepted"]["status"] == "True")
    world.add_zone("copy", tenant="acme")
    world.add_zone("stray", pool="gone")

    for reason, zone in (("TenantConflict", "copy"), ("PoolNotFound", "stray")):
        event = the_only(world, reason)
        assert (event["regarding"]["name"], event["type"]) == (zone, "Warning")
        assert event["note"] == conditions(world.zone(zone))["Accepted"]["message"]


def test_a_config_that_an_engine_refuses_is_an_event_of_the_pool(world: World):
    with world.refusing("zones[0].reserved: not today"):
        event = the_only(world, "ConfigRejected")
        assert event["regarding"]["kind"] == "ZonePool"
        assert "zones[0].reserved: not today" in event["note"]


def test_evictions_and_reclaimed_loans_are_events_of_the_zone(world: World):
    world.add_pool()
    world.add_zone("acme")
    engine = world.add_engine()
    engine.cached["acme"] = 4
    world.await_ready("acme")
    eventually(lambda: world.zone("acme")["status"].get("state") == "Idle")

    engine.details["acme"] = {"evictions": {"reclaim": 4}}
    engine.cached["acme"] = 0

    assert engine.name in the_only(world, "LoanReclaimed")["note"]
    assert the_only(world, "ZoneEvicted")["regarding"]["name"] == "acme"
    assert conditions(world.zone("acme"))["Ready"]["status"] == "True"


def test_what_happens_again_is_counted_in_the_same_event(world: World):
    world.add_pool()
    world.add_zone("acme")
    engine = world.add_engine()
    world.await_ready("acme")

    for blocks in range(1, 4):
        polls = engine.polls
        engine.details["acme"] = {"evictions": {"reclaim": blocks}}
        eventually(lambda: engine.polls > polls + 1)  # noqa: B023

    def count() -> int:
        (event,) = world.events("LoanReclaimed")
        return event.get("series", {}).get("count", 0)

    eventually(lambda: count() >= 2)
