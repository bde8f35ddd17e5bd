"""What a pool is advised, and what becomes of it: within bounds, one change at a time, undone if it does harm."""

import re
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenantzone_contract.config import RuntimeConfig
from tenantzone_contract.config_text import make_config
from tenantzone_operator.advice.adjustment import MAX_ADJUSTMENTS, Field, read_adjustments
from tenantzone_operator.advice.advisor import REST_WINDOWS, Advisor, Moment
from tenantzone_operator.advice.overlay import Overlay
from tenantzone_operator.advice.values import amount, value_of, value_of_pool, within
from tenantzone_operator.advice.window import Window
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.engines.reports import LatencyReport, TargetReport
from tenantzone_operator.engines.views import EngineView, ZoneView
from tenantzone_operator.kube.resources import Pool, Zone
from tenantzone_operator.status.notices import pool_notices
from tests.operator.objects import pool, zone

WINDOW = 100.0
BLOCKS = 1000
ALL: dict[str, Any] = {
    "limit": {"min": "20%", "max": "80%"},
    "weight": {"min": 1, "max": 8},
    "ttl": {"min": "1m", "max": "1h"},
    "evictionPolicies": ["LRU", "Clock", "LFU"],
    "watermarks": {"min": 0, "max": 0.5},
}

KEPT = {"zone": "acme", "field": "weight", "spec": "1", "value": "2", "state": "Kept", "since": "2023-11-14T22:13:20Z"}


def auto(**spec: Any) -> Pool:
    return pool(advice={"mode": "Auto", "window": "100s", "bounds": ALL} | spec.pop("advice", {}), **spec)


def seen(**figures: Any) -> ZoneView:
    """An idle zone, but for what is said; ``ratio`` and ``why`` are of its latency target."""
    ratio, why = figures.pop("ratio", None), figures.pop("why", "Neighbours")
    latency = None
    if ratio is not None:
        latency = LatencyReport(TargetReport(target_seconds=1.0, actual_seconds=ratio, reason=why))
    empty: dict[str, Any] = dict.fromkeys(
        ("in_use", "cached", "lent", "borrowed", "prefix_query_tokens", "prefix_hit_tokens", "blocks_evicted"), 0
    )
    empty |= {"generation": 1, "state": "Active", "reserved": 0, "limit": BLOCKS, "taken_back": 0, "awaited_seats": 0}
    return ZoneView(**(empty | figures), latency=latency)


def engine(*, generation: int = 1, config_hash: str = "", **zones: ZoneView) -> EngineView:
    return EngineView(BLOCKS, 16, generation, config_hash, "", "", "", zones, None, "", False, "", {})


COUNTED = (
    *("prefix_query_tokens", "prefix_hit_tokens"),
    *("evicted_by_limit", "evicted_by_ttl", "evicted_by_watermark", "evicted_for_room"),
)


@dataclass
class Life:
    """A pool with one engine, which does at once what it is told."""

    pool: Pool
    zones: list[Zone]
    behave: Callable[[RuntimeConfig], dict[str, dict[str, Any]]]
    """What zones do in ten seconds under a config; counters are by how much they grow."""
    status: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    takes_configs: bool = True
    config: RuntimeConfig | None = None

    def __post_init__(self) -> None:
        self.advisor, self.overlay = Advisor(), Overlay()
        self.counted: dict[str, dict[str, int]] = {}
        self.generation = 0
        self.step(0.0)

    def step(self, seconds: float = 10.0) -> None:
        """Let time pass, deliver what the status says, and look."""
        self.seconds += seconds
        stored = replace(self.pool, status=self.status)
        in_force = self.overlay.over(stored, self.zones)
        assert in_force.pool is not None
        assert in_force.pool.config is not None
        entries = tuple(each.config for each in in_force.zones if each.config is not None)
        if self.config is None or (self.config.zones, self.config.pool) != (entries, in_force.pool.config):
            self.generation += 1
            self.config = make_config(self.generation, in_force.pool.config, entries)
        told = {}
        for name, figures in self.behave(self.config).items():
            known = self.counted.setdefault(name, dict.fromkeys(COUNTED, 0))
            for counter in COUNTED:
                known[counter] += figures.get(counter, 0)
            told[name] = seen(**figures | known)
        seen_now = engine(generation=self.generation, config_hash=self.config.hash, **told)
        self.status = self.advisor.look(
            Moment(
                stored, self.zones, in_force, [Observation("engine-0", seen_now)], self.config, self.takes_configs,
                self.seconds, 1_700_000_000.0 + self.seconds,
            ),
            self.status,
        )  # fmt: skip

    def pass_windows(self, count: float) -> None:
        for _ in range(int(count * WINDOW / 10.0)):
            self.step()

    def restart(self) -> None:
        self.advisor, self.overlay = Advisor(), Overlay()

    @property
    def rows(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(row.get("zone", ""), row["field"]): row for row in self.status.get("adjustments", [])}

    def has(self, name: str, what: Field) -> str:
        """What the engine has."""
        assert self.config is not None
        if not name:
            return value_of_pool(self.config.pool)
        return value_of(next(each for each in self.config.zones if each.name == name), what)


def weight_of(config: RuntimeConfig, name: str) -> int:
    return next(each.weight for each in config.zones if each.name == name)


def slow_unless_heavy(config: RuntimeConfig) -> dict[str, dict[str, Any]]:
    """A zone that meets its target as soon as it has a weight of 4."""
    return {"acme": {"ratio": 4.0 / weight_of(config, "acme")}, "burst": {}}


def two_zones(**acme: Any) -> list[Zone]:
    return [zone("acme", reserved="20%", **acme), zone("burst")]


# What is advised


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
    ids=["met", "model", "own load", "nobody is short", "somebody is short", "no zone of the pool"],
)
def test_nothing_is_recommended_that_would_not_help(behaviour: dict[str, dict[str, Any]]):
    assert not recommended(behaviour, *two_zones(limit="40%"))


def test_who_wants_no_advice_gets_none():
    assert not recommended({"acme": {"ratio": 3.0}}, advice={"mode": "Never"})


def test_a_recommendation_stays_as_it_is_told_until_it_is_another_one():
    life = Life(pool(advice={"window": "100s"}), two_zones(), slow_unless_heavy)
    life.pass_windows(1.5)
    told = life.status
    assert told["recommendation"]["value"] == "2"
    life.pass_windows(3)
    assert life.status == told
    life.zones = two_zones(weight=4)
    life.step()
    assert not life.status


def test_a_limit_in_blocks_is_the_users():
    slow = {"acme": {"ratio": 3.0, "why": "Blocks"}, "burst": {"in_use": 600}}
    assert not recommended(slow, zone("acme", reserved="20%"), zone("burst", limit=700))


def test_nobody_gets_a_limit_above_what_it_holds():
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


# What is tried, kept and undone


def test_what_helps_is_kept_step_by_step_and_no_spec_changes():
    life = Life(auto(), two_zones(), slow_unless_heavy)
    life.pass_windows(1.2)
    assert life.rows["acme", "weight"]["state"] == "Trial"
    assert life.has("acme", Field.WEIGHT) == "2"
    life.pass_windows(4)
    assert life.rows["acme", "weight"]["state"] == "Kept"
    assert life.has("acme", Field.WEIGHT) == "4"
    told = life.status
    life.pass_windows(20)
    assert life.status == told, "the target is met"
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
    assert "burst had 1.00 times a latency target, and has 2.00 times since" in life.rows["acme", "weight"]["message"]
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
        "burst found 50.0% of its prompts in the cache, and finds 40.0% since"
        in life.status["adjustments"][0]["message"]
    )


@pytest.mark.parametrize("undone", [False, True])
def test_room_for_another_change_is_made_of_what_is_not_in_force_only(undone: bool):
    names = [f"zone-{number:03}" for number in range(MAX_ADJUSTMENTS)]
    kept = [KEPT | {"zone": name} for name in names]
    if undone:
        kept[-1] |= {"state": "Undone", "undone": 1}
    zones = [*two_zones(), *(zone(name) for name in names)]
    life = Life(auto(), zones, slow_unless_heavy, status={"adjustments": kept})
    life.pass_windows(1.2)
    assert len(life.rows) == MAX_ADJUSTMENTS
    assert {name for name in names if (name, "weight") not in life.rows} == ({names[-1]} if undone else set())
    assert (("acme", "weight") in life.rows) == undone


@pytest.mark.parametrize(
    ("after", "is_kept"),
    [(0.70, True), (0.503, False), (0.40, False), (None, False)],
    ids=["better", "no better", "worse", "nobody asks any more"],
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
        # First Clock finds more, and later what the spec says.
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


def test_what_was_evicted_while_nobody_wanted_advice_is_not_of_the_first_window():
    figures: dict[str, Any] = {"cached": 10, "evicted_by_limit": 9}
    life = Life(pool(advice={"window": "100s"}), two_zones(limit="40%"), lambda _: {"acme": figures})
    life.pass_windows(0.5)
    life.pool = pool(advice={"mode": "Never"})
    life.pass_windows(20)
    life.pool, figures["evicted_by_limit"] = pool(advice={"window": "100s"}), 0
    life.pass_windows(2)
    assert not life.status


@pytest.mark.parametrize("what", ["pool", "zone"])
def test_what_was_kept_stays_while_a_spec_makes_no_sense(what: str):
    life = Life(auto(), two_zones(), slow_unless_heavy)
    life.pass_windows(6)
    told, pools, zones = life.status, life.pool, life.zones
    if what == "pool":
        life.pool = replace(pools, config=None, invalid="it makes no sense")
    else:
        life.zones = [replace(zones[0], config=None, invalid="it makes no sense"), *zones[1:]]
    stored = replace(life.pool, status=told)
    moment = Moment(
        stored, life.zones, life.overlay.over(stored, life.zones), [], life.config, False, life.seconds + 1,
        1_700_000_000.0 + life.seconds + 1,
    )  # fmt: skip
    life.status = life.advisor.look(moment, told)
    assert life.status == told
    life.pool, life.zones = pools, zones
    life.step()
    assert life.has("acme", Field.WEIGHT) == "4"


def test_what_engines_do_not_take_is_undone():
    life = Life(auto(), two_zones(), slow_unless_heavy)
    life.takes_configs = False
    life.pass_windows(2.3)
    assert life.rows["acme", "weight"]["state"] == "Undone"
    assert life.has("acme", Field.WEIGHT) == "1"


def test_a_trial_that_a_restart_cuts_off_is_undone_and_what_was_kept_before_stays():
    life = Life(auto(), two_zones(), slow_unless_heavy)
    life.pass_windows(3.3)
    assert life.rows["acme", "weight"]["previous"] == "2"
    life.restart()
    life.step()
    life.step()
    assert life.rows["acme", "weight"]["state"] == "Kept"
    assert life.has("acme", Field.WEIGHT) == "2"


def test_a_trial_that_a_restart_cuts_off_rests_on_if_it_was_undone_before():
    life = Life(auto(advice={"bounds": {"weight": ALL["weight"]}}), two_zones(), lambda _: {"acme": {"ratio": 4.0}})
    life.pass_windows(2.5)
    assert life.rows["acme", "weight"]["state"] == "Undone"
    life.pass_windows(REST_WINDOWS + 0.5)
    assert life.rows["acme", "weight"] == life.rows["acme", "weight"] | {"state": "Trial", "undone": 1}
    life.restart()
    tried = 0
    for _ in range(REST_WINDOWS - 1):
        life.pass_windows(1)
        tried += life.has("acme", Field.WEIGHT) != "1"
    assert not tried
    assert life.rows["acme", "weight"]["undone"] == 1


@pytest.mark.parametrize(
    "advice", [{"mode": "Recommend"}, {"mode": "Never"}, {"bounds": {"weight": {"min": 1, "max": 3}}}]
)
def test_the_pools_word_counts_at_once(advice: dict[str, Any]):
    life = Life(auto(), two_zones(), slow_unless_heavy)
    life.pass_windows(6)
    assert life.has("acme", Field.WEIGHT) == "4"
    life.pool = auto(advice=advice)
    life.step()
    assert life.has("acme", Field.WEIGHT) == "1"
    assert not life.rows


def test_a_spec_that_changes_ends_what_was_in_its_place():
    life = Life(auto(), two_zones(), slow_unless_heavy)
    life.pass_windows(6)
    life.zones = two_zones(weight=3)
    life.step()
    assert life.has("acme", Field.WEIGHT) == "3"


@pytest.mark.parametrize(
    "rows",
    [
        "no list",
        [{}],
        [None, 3],
        [{"zone": "acme", "field": "reserved", "value": "90%", "state": "Kept", "since": "2026-01-01T00:00:00Z"}],
        [{"zone": "acme", "field": "weight", "spec": "1", "value": "99", "state": "Kept",
          "since": "2026-01-01T00:00:00Z"}],
        [{"zone": "acme", "field": "limit", "value": "90%", "state": "Kept", "since": "2026-01-01T00:00:00Z"}],
        [{"zone": "acme", "field": "limit", "value": "1000", "state": "Kept", "since": "2026-01-01T00:00:00Z"}],
        [{"zone": "acme", "field": "weight", "spec": "1", "value": "2", "state": "Won", "since": "yesterday"}],
    ],
)  # fmt: skip
def test_what_somebody_else_writes_into_a_status_is_in_force_only_within_the_bounds(rows: Any):
    zones = two_zones()
    overlaid = Overlay().over(auto(status={"adjustments": rows}), zones)
    assert [each.config for each in overlaid.zones] == [each.config for each in zones]


@pytest.mark.parametrize(
    "forged",
    [
        {"since": "0001-01-01T00:00:00+23:59"},
        {"since": "0001-01-01T00:00:00Z"},
        {"since": "9999-12-31T23:59:59Z"},
        {"since": "9999-12-31T23:59:59-23:59"},
        {"undone": 2**31 - 1},
        {"undone": -(2**31)},
        {"value": "9" * 400},
        {"previous": "9" * 400, "state": "Undone"},
    ],
    ids=["before the year 1", "in the year 1", "far ahead", "after the last year", "undone for ever", "undone below 0",
         "a huge weight", "a huge weight before"],
)  # fmt: skip
def test_whatever_stands_in_a_row_the_status_can_be_written(forged: dict[str, Any]):
    life = Life(auto(), two_zones(), lambda _: {}, status={"adjustments": [KEPT | forged]})
    for _ in range(3):
        now = datetime.fromtimestamp(1_700_000_000.0 + life.seconds, UTC)
        for row in life.status.get("adjustments", []):
            assert re.fullmatch(r"[12]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row["since"])
            assert datetime.fromisoformat(row["since"]) <= now
            assert 0 <= row.get("undone", 0) < 2**31 - 1
        life.step()


def test_a_clock_that_was_ahead_makes_nothing_rest_for_longer():
    row = KEPT | {"state": "Undone", "undone": 1, "since": "2033-11-14T22:13:20Z"}
    life = Life(auto(), two_zones(), slow_unless_heavy, status={"adjustments": [row]})
    life.pass_windows(REST_WINDOWS + 2)
    assert life.has("acme", Field.WEIGHT) == "2"


def test_a_zone_that_is_as_its_spec_says_is_the_very_same_object():
    status = {"adjustments": [{"zone": "acme", "field": "weight", "spec": "1", "value": "2", "state": "Kept",
                               "since": "2026-01-01T00:00:00Z"}]}  # fmt: skip
    overlay, zones, of = Overlay(), two_zones(), auto(status=status)
    first, second = overlay.over(of, zones), overlay.over(of, zones)
    assert second.zones[1] is zones[1]
    assert second.zones[0] is first.zones[0]
    assert second.zones[0].config is not None
    assert second.zones[0].config.weight == 2


def test_people_are_told_once_of_what_is_tried_kept_and_undone():
    life = Life(auto(), two_zones(), slow_unless_heavy)
    told = []
    for _ in range(60):
        before = life.status
        life.step()
        told += pool_notices(before, life.status)
    assert [notice.reason for notice in told] == ["Tried", "Kept", "Tried", "Kept"]
    assert told[0].note.startswith("weight of acme 2 in place of 1: acme misses a latency target")
    assert not pool_notices(life.status, life.status)


@pytest.mark.parametrize("what", ["why", "waiting_for", "name"])
def test_words_that_an_engine_makes_up_are_not_remembered(what: str):
    window = Window()
    tracemalloc.start()
    for number in range(3000):
        word = f"{number:0>250}"
        slow: dict[str, Any] = {"ratio": 3.0}
        known = {word: seen(**slow)} if what == "name" else {"acme": seen(**slow | {what: word})}
        window.look([Observation("engine-0", engine(**known | {"burst": seen()}))], {"acme", "burst"})
        if number == 100:
            before = tracemalloc.get_traced_memory()[0]
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000
    assert window.figures.looks == 3000


def test_an_engine_that_does_not_answer_for_a_while_goes_on_counting():
    window, silent = Window(), Observation("engine-1", None)

    def look(evicted: int, *others: Observation, engines: int = 1) -> int:
        told = [Observation(f"engine-{each}", engine(acme=seen(evicted_by_ttl=evicted))) for each in range(engines)]
        window.look([*told, *others], {"acme"})
        return window.figures.zones["acme"].evicted_by_ttl

    assert look(10, engines=2) == 0
    assert look(10, silent) == 0
    assert look(15, engines=2) == 10
    assert look(15) == 10
    assert look(18, engines=2) == 13, "a new one of the name counts from now on"


def test_who_waits_at_its_limit_in_one_engine_of_many_waits_there():
    window = Window()
    waiting = [engine(acme=seen(waiting_for=why)) for why in ("seats", "limit", "limit")]
    window.look([Observation(f"engine-{number}", each) for number, each in enumerate(waiting)], {"acme"})
    assert window.figures.zones["acme"].waited_at_limit == 1


# Lives

figures = st.fixed_dictionaries(
    {},
    optional={
        "ratio": st.sampled_from([0.5, 1.0, 1.2, 2.0, 9.0]),
        "why": st.sampled_from(["Neighbours", "Seats", "Blocks", "OwnLoad", "a reason of a newer engine"]),
        "waiting_for": st.sampled_from(["limit", "reserved", "in_use"]),
        "in_use": st.integers(0, 500),
        "cached": st.integers(0, 500),
        "prefix_query_tokens": st.sampled_from([0, 100, 10_000]),
        "prefix_hit_tokens": st.sampled_from([0, 10, 100]),
        "evicted_by_limit": st.integers(0, 300),
        "evicted_by_ttl": st.integers(0, 300),
        "evicted_by_watermark": st.integers(0, 300),
        "evicted_for_room": st.integers(0, 300),
    },
)
bounds = st.fixed_dictionaries({}, optional={name: st.just(value) for name, value in ALL.items()})
specs = st.fixed_dictionaries(
    {"reserved": st.sampled_from(["0%", "20%", "30%", 250])},
    optional={
        "limit": st.sampled_from(["40%", "90%", 500]),
        "weight": st.integers(1, 20),
        "retention": st.sampled_from([{"ttl": "30s"}, {"ttl": "10m"}, {"ttl": "24h"}, {"noStore": True}]),
        "evictionPolicy": st.sampled_from(["LRU", "Clock", "LFU"]),
    },
)
NAMES = ("acme", "burst", "chat")


def values(life: Life) -> dict[tuple[str, Field], str]:
    found = {(name, what): life.has(name, what) for name in NAMES for what in Field if what is not Field.WATERMARK}
    return found | {("", Field.WATERMARK): life.has("", Field.WATERMARK)}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_lives(data: st.DataObject):
    of = auto(advice={"bounds": data.draw(bounds.filter(bool))}, watermarks={"low": 0.1, "high": 0.4})
    zones = [zone(name, **data.draw(specs)) for name in NAMES]
    now: dict[str, dict[str, Any]] = {}
    life = Life(of, zones, lambda _: now)
    spec, was = values(life), values(life)
    changed: dict[tuple[str, Field], tuple[float, float]] = {}
    """When a field was changed last, and in which direction."""
    changes = 0
    for _ in range(data.draw(st.integers(5, 20))):
        now.clear()
        now.update({name: data.draw(figures) for name in NAMES})
        if data.draw(st.integers(0, 9)) == 0:
            # What was decided a moment ago is delivered, and taken back.
            life.restart()
            life.step()
            changed.clear()
            was = values(life)
        life.takes_configs = data.draw(st.integers(0, 4)) > 0
        for _ in range(10):
            told = read_adjustments(life.status)
            life.step()
            found = values(life)
            differing = {key for key in found if found[key] != spec[key]}
            rows = read_adjustments(life.status)
            assert all(within(of.advice.bounds, key[1], found[key]) for key in differing), "out of bounds"
            assert differing <= {each.key for each in told if each.in_force}, "nothing says so"
            assert sum(each.state == "Trial" for each in rows) <= 1
            assert len(rows) <= MAX_ADJUSTMENTS
            moved = [key for key in found if found[key] != was[key]]
            assert len(moved) <= 1, "two changes at once"
            changes += len(moved)
            for key in moved:
                row = next((each for each in told if each.key == key), None)
                if row is not None and row.state == "Trial":
                    _assert_no_flapping(changed.get(key), key[1], was[key], found[key], life.seconds)
                    changed[key] = life.seconds, _direction(key[1], was[key], found[key])
            was = found
    # A change and what may undo it take a window each.
    assert changes <= life.seconds / WINDOW + 2
    life.pool = auto(advice={"mode": "Recommend"}, watermarks={"low": 0.1, "high": 0.4})
    life.step()
    assert values(life) == spec, "what is no longer wanted is gone at once"


def _assert_no_flapping(before: tuple[float, float] | None, what: Field, was: str, now: str, seconds: float) -> None:
    if before is not None and before[1] * _direction(what, was, now) <= 0:
        assert seconds - before[0] >= REST_WINDOWS * WINDOW, "back and forth"


def _direction(what: Field, was: str, now: str) -> float:
    """Up or down; 0: neither."""
    numbers = [amount(what, value) for value in (was, now)]
    if what is Field.EVICTION_POLICY or numbers[1] is None:
        return 0.0
    return 1.0 if numbers[1] > (float("inf") if numbers[0] is None else numbers[0]) else -1.0
