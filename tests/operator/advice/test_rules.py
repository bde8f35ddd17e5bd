"""The advice: one step of the value that would help, and nothing where none would."""

from typing import Any

import pytest

from tenantzone_operator.kube.resources import Zone
from tests.operator.advice.life import WINDOW, Life, auto, slow_unless_heavy, two_zones
from tests.operator.objects import pool, zone


def recommended(behaviour: dict[str, dict[str, Any]], *zones: Zone, **spec: Any) -> dict[str, Any]:
    life = Life(pool(**spec), list(zones) or two_zones(), lambda _: behaviour)
    life.pass_windows(7)
    assert "adjustments" not in life.status
    return dict(life.status.get("recommendation", {}))


@pytest.mark.parametrize(
    ("behaviour", "zones", "spec", "what", "value", "reason"),
    [
        ({"acme": {"ratio": 3.0}}, two_zones(), {}, "weight", "2", "TargetMissed"),
        ({"acme": {"ratio": 3.0, "why": "Seats"}}, two_zones(weight=3), {}, "weight", "6", "TargetMissed"),
        (
            {"acme": {"ratio": 3.0, "why": "Blocks", "waiting_for": "limit"}},
            two_zones(limit="40%"), {}, "limit", "50%", "TargetMissed",
        ),
        (
            {"acme": {"ratio": 3.0, "why": "Blocks"}, "burst": {"in_use": 600}},
            two_zones(), {}, "limit", "48%", "TargetMissed",
        ),
        ({"acme": {"cached": 10, "evicted_by_limit": 9}}, two_zones(limit="40%"), {}, "limit", "50%", "LimitTooLow"),
        (
            {"acme": {"cached": 10, "evicted_by_ttl": 9}},
            two_zones(retention={"ttl": "5m"}), {}, "retention.ttl", "10m", "KeptTooShort",
        ),
        (
            {"acme": {"cached": 300, "prefix_query_tokens": 99}, "burst": {"evicted_for_room": 50}},
            two_zones(), {}, "retention.ttl", "1440m", "KeptInVain",
        ),
        (
            {"acme": {"cached": 30, "evicted_for_room": 50, "prefix_query_tokens": 99, "prefix_hit_tokens": 9}},
            two_zones(), {}, "evictionPolicy", "Clock", "CacheTurnedOver",
        ),
        (
            {"acme": {"evicted_by_watermark": 50}},
            two_zones(), {"watermarks": {"low": 0.1, "high": 0.2}}, "watermarks.high", "0.1", "EvictedEarly",
        ),
    ],
    ids=["neighbours", "seats", "own limit", "largest", "limit", "short ttl", "long ttl", "policy", "watermarks"],
)  # fmt: skip
def test_each_rule_recommends_one_step_by_default(
    behaviour: dict[str, dict[str, Any]], zones: list[Zone], spec: dict[str, Any], what: str, value: str, reason: str
):
    found = recommended(behaviour, *zones, **spec)
    assert (found["field"], found["value"], found["reason"]) == (what, value, reason)
    assert found["message"].startswith(what)


@pytest.mark.parametrize(
    "behaviour",
    [
        {"acme": {"ratio": 1.1}},
        {"acme": {"ratio": 9.0, "why": "ModelTooSlow"}},
        {"acme": {"ratio": 9.0, "why": "OwnLoad"}},
        {"acme": {"prefix_query_tokens": 99, "cached": 300}},
        {"acme": {"cached": 10, "evicted_by_limit": 9}, "burst": {"evicted_for_room": 50}},
        {"stranger": {"ratio": 9.0}},
    ],
    ids=["met", "model", "own load", "no zone is short", "a zone is short", "no zone of the pool"],
)
def test_nothing_is_recommended_that_would_not_help(behaviour: dict[str, dict[str, Any]]):
    assert not recommended(behaviour, *two_zones(limit="40%"))


def test_who_wants_no_advice_gets_none():
    assert not recommended({"acme": {"ratio": 3.0}}, advice={"mode": "Never"})


def test_a_recommendation_stays_as_reported_until_it_is_another_one():
    life = Life(pool(advice={"window": "100s"}), two_zones(), slow_unless_heavy)
    life.pass_windows(1.5)
    reported = life.status
    assert reported["recommendation"]["value"] == "2"
    life.pass_windows(3)
    assert life.status == reported
    life.zones = two_zones(weight=4)
    life.step()
    assert not life.status


def test_a_limit_in_blocks_is_the_users():
    slow = {"acme": {"ratio": 3.0, "why": "Blocks"}, "burst": {"in_use": 600}}
    assert not recommended(slow, zone("acme", reserved="20%"), zone("burst", limit=700))


def test_no_zone_gets_a_limit_above_what_it_holds():
    slow = {"acme": {"ratio": 3.0, "why": "Blocks"}, "burst": {"in_use": 600}}
    high = {"bounds": {"limit": {"min": "70%", "max": "90%"}}}
    life = Life(auto(advice=high), two_zones(), lambda _: slow)
    life.pass_windows(4)
    assert "adjustments" not in life.status


def test_who_misses_a_target_itself_gets_no_limit():
    slow = {"acme": {"ratio": 3.0, "why": "Blocks"}, "burst": {"in_use": 600, "ratio": 2.0, "why": "OwnLoad"}}
    assert not recommended(slow)


def test_two_looks_are_not_enough_to_advise_anything():
    life = Life(pool(advice={"window": "100s"}), two_zones(), slow_unless_heavy)
    life.step(WINDOW)
    assert not life.status
    life.step(WINDOW)
    assert life.status["recommendation"]["value"] == "2"
