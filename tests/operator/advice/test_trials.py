"""What is tried, kept and undone: one change at a time, undone if it does harm."""

from itertools import pairwise
from typing import Any

import pytest

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_operator.advice.adjustment import Field
from tenantzone_operator.advice.advisor import REST_WINDOWS
from tenantzone_operator.status.notices import pool_notices
from tests.operator.advice.life import ALL, WINDOW, Life, auto, slow_unless_heavy, two_zones, weight_of
from tests.operator.objects import pool


def test_what_helps_is_kept_step_by_step_and_no_spec_changes():
    life = Life(auto(), two_zones(), slow_unless_heavy)
    life.pass_windows(1.2)
    assert life.rows["acme", "weight"]["state"] == "Trial"
    assert life.has("acme", Field.WEIGHT) == "2"
    life.pass_windows(4)
    assert life.rows["acme", "weight"]["state"] == "Kept"
    assert life.has("acme", Field.WEIGHT) == "4"
    reported = life.status
    life.pass_windows(20)
    assert life.status == reported, "the target is met"
    assert life.zones[0].config is not None
    assert life.zones[0].config.weight == 1


def test_what_makes_anothers_target_worse_is_undone_and_rests_the_longer():
    def behave(config: RuntimeConfig) -> dict[str, dict[str, Any]]:
        weight = weight_of(config, "acme")
        return {"acme": {"ratio": 4.0 / weight}, "burst": {"ratio": 1.0 * weight}}

    life = Life(auto(advice={"bounds": {"weight": ALL["weight"]}}), two_zones(), behave)
    tries, was = [], "1"
    for _ in range(400):
        life.step()
        if (now := life.has("acme", Field.WEIGHT)) != was:
            was = now
            tries += [life.seconds] if now != "1" else []
    assert life.rows["acme", "weight"]["state"] == "Undone"
    assert (
        "the latency of burst was 1.00 times a target, and is 2.00 times since the change"
        in life.rows["acme", "weight"]["message"]
    )
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert len(pauses) >= 2
    assert pauses[0] >= REST_WINDOWS * WINDOW
    assert pauses[1] >= 2 * REST_WINDOWS * WINDOW


def test_what_costs_one_zone_its_hits_is_undone_though_all_find_as_much():
    def behave(config: RuntimeConfig) -> dict[str, dict[str, Any]]:
        weight = weight_of(config, "acme")
        found = {"prefix_query_tokens": 10_000, "prefix_hit_tokens": 5000}
        little = {"prefix_query_tokens": 100, "prefix_hit_tokens": 50 if weight == 1 else 40}
        return {"acme": found | {"ratio": 4.0 / weight}, "burst": little}

    life = Life(auto(advice={"bounds": {"weight": ALL["weight"]}}), two_zones(), behave)
    life.pass_windows(2.5)
    assert life.rows["acme", "weight"]["state"] == "Undone"
    assert (
        "burst found 50.0% of its prompts in the cache, and finds 40.0% since the change"
        in life.status["adjustments"][0]["message"]
    )


@pytest.mark.parametrize(
    ("after", "is_kept"),
    [(0.70, True), (0.503, False), (0.40, False), (None, False)],
    ids=["better", "no better", "worse", "no more requests"],
)
def test_a_policy_is_kept_only_if_more_is_found(after: float | None, is_kept: bool):
    def behave(config: RuntimeConfig) -> dict[str, dict[str, Any]]:
        rate = 0.5 if config.zones[0].eviction_policy == "LRU" else after
        figures = {"cached": 300, "evicted_for_room": 50}
        return {"acme": figures | ({} if rate is None else {
            "prefix_query_tokens": 10_000, "prefix_hit_tokens": int(10_000 * rate)})}  # fmt: skip

    life = Life(auto(advice={"bounds": {"evictionPolicies": ["LRU", "Clock"]}}), two_zones(), behave)
    life.pass_windows(5.5)
    assert life.rows["acme", "evictionPolicy"]["state"] == ("Kept" if is_kept else "Undone")
    assert life.has("acme", Field.EVICTION_POLICY) == ("Clock" if is_kept else "LRU")


def test_what_was_kept_may_be_tried_as_the_spec_has_it():
    def behave(config: RuntimeConfig) -> dict[str, dict[str, Any]]:
        # At first Clock finds more, and later the spec's policy.
        is_better = (config.zones[0].eviction_policy == "Clock") == (clock[-1] < 60)
        clock.append(clock[-1] + 1)
        found = {"prefix_query_tokens": 1000, "prefix_hit_tokens": 500 if is_better else 300}
        return {"acme": found | {"cached": 300, "evicted_for_room": 50}}

    clock = [0]
    life = Life(auto(advice={"bounds": {"evictionPolicies": ["LRU", "Clock"]}}), two_zones(), behave)
    life.pass_windows(5.5)
    assert life.has("acme", Field.EVICTION_POLICY) == "Clock"
    life.pass_windows(8)
    assert life.rows["acme", "evictionPolicy"]["state"] == "Kept"
    assert life.has("acme", Field.EVICTION_POLICY) == "LRU"


def test_what_was_found_until_engines_took_a_change_does_not_count_for_it():
    def behave(config: RuntimeConfig) -> dict[str, dict[str, Any]]:
        is_taken = life is not None and life.takes_configs and config.zones[0].eviction_policy == "Clock"
        found = {"prefix_query_tokens": 10_000, "prefix_hit_tokens": 5080 if is_taken else 5000}
        return {"acme": found | {"cached": 300, "evicted_for_room": 50}}

    life: Life | None = None
    life = Life(auto(advice={"bounds": {"evictionPolicies": ["LRU", "Clock"]}}), two_zones(), behave)
    life.pass_windows(1)
    life.takes_configs = False
    assert life.rows["acme", "evictionPolicy"]["state"] == "Trial"
    life.pass_windows(0.8)
    life.takes_configs = True
    life.pass_windows(1.2)
    assert life.rows["acme", "evictionPolicy"]["state"] == "Kept"


def test_what_was_evicted_while_no_advice_was_wanted_is_not_of_the_first_window():
    figures: dict[str, Any] = {"cached": 10, "evicted_by_limit": 9}
    life = Life(pool(advice={"window": "100s"}), two_zones(limit="40%"), lambda _: {"acme": figures})
    life.pass_windows(0.5)
    life.pool = pool(advice={"mode": "Never"})
    life.pass_windows(20)
    life.pool, figures["evicted_by_limit"] = pool(advice={"window": "100s"}), 0
    life.pass_windows(2)
    assert not life.status


def test_trials_that_are_begun_kept_and_undone_are_reported_once():
    life = Life(auto(), two_zones(), slow_unless_heavy)
    reported = []
    for _ in range(60):
        before = life.status
        life.step()
        reported += pool_notices(before, life.status)
    assert [notice.reason for notice in reported] == ["Tried", "Kept", "Tried", "Kept"]
    assert reported[0].note.startswith("weight of acme 2 instead of 1: acme misses a latency target")
    assert not pool_notices(life.status, life.status)
