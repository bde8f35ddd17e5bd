"""What the policies that zones are compared with do, each by what sets it apart."""

from dataclasses import replace

import pytest

from tenantzone_replay.policies import changed, equal_zones, policies
from tenantzone_replay.replay import replay
from tests.replay.loads import BLOCK_TOKENS, asked, flood_beside_a_quiet_tenant, setting

DEMAND = {"quiet": 1, "flood": 2}


def result_of(name, requests, *, blocks, zones=None, tier_blocks=0, **more):
    at = replace(setting(requests, blocks=blocks), **more)
    zones = zones or equal_zones(list(at.profile.demand), blocks)
    every = policies(zones, blocks, at.hardware.prompt_tokens_per_second, DEMAND, tier_blocks)
    return replay(at, every[name])


def test_who_has_priority_is_served_first():
    requests = [asked(0.0, "flood", range(1000 * number, 1000 * number + 60)) for number in range(1, 80)]
    requests += [asked(0.01, "quiet", range(1, 5))]
    first_tokens = {
        name: result_of(name, requests, blocks=400).tenants["quiet"].first_token.quantile(1.0)
        for name in ("salted", "priority")
    }
    assert first_tokens["priority"] < first_tokens["salted"] / 3


def test_priorities_are_those_of_the_zones_where_they_have_some():
    zones = [
        changed(zone, priority=priority) for zone, priority in zip(equal_zones(["a", "b"], 10), (1, 5), strict=True)
    ]
    assert policies(zones, 10, 1.0, {"a": 1, "b": 2})["priority"].priorities == {"a": -1, "b": -5}
    assert policies(equal_zones(["a", "b"], 10), 10, 1.0, {"a": 3, "b": 2})["priority"].priorities == {"b": 0, "a": 1}


def test_what_has_priority_is_evicted_last_in_the_radix_policy():
    solo = (60 - 1) * 20 * BLOCK_TOKENS
    requests = flood_beside_a_quiet_tenant()
    assert result_of("priority", requests, blocks=200).tenants["quiet"].hit_tokens < 0.5 * solo
    assert result_of("radix-priority", requests, blocks=200).tenants["quiet"].hit_tokens >= 0.99 * solo


def test_random_lru_keeps_by_chance_what_lru_loses_in_a_loop():
    # A loop over more blocks than fit is what LRU is worst at.
    requests = [asked(float(number), "quiet", [number % 60 + 1]) for number in range(600)]
    assert result_of("salted", requests, blocks=50).hit_rate == 0
    found = result_of("random-lru", requests, blocks=50)
    assert 0.05 < found.hit_rate < 0.6
    assert found.tenants["quiet"].evicted["lru"] > 0


def test_a_tier_finds_again_what_the_engine_has_evicted():
    requests = flood_beside_a_quiet_tenant(rounds=30)
    last = [each for each in requests if each.tenant == "flood"][-60:]
    requests += [asked(40.0 + 0.1 * number, "flood", each.content) for number, each in enumerate(reversed(last))]
    without, small, large = (
        result_of("zones-tier", requests, blocks=200, tier_blocks=tier_blocks) for tier_blocks in (0, 1200, 20_000)
    )
    assert without.hit_tokens < small.hit_tokens < large.hit_tokens
    assert large.tenants["flood"].hit_tokens >= 0.9 * sum(len(each.content) for each in last) * BLOCK_TOKENS
    assert large.tenants["quiet"].hit_tokens >= without.tenants["quiet"].hit_tokens


def test_what_comes_from_the_tier_takes_time():
    requests = [
        asked(0.0, "quiet", range(1, 60)),
        asked(5.0, "flood", range(100, 290)),
        asked(9.0, "quiet", range(1, 60)),
    ]
    zones = [changed(zone, reserved=0) for zone in equal_zones(["quiet", "flood"], 200)]
    result = result_of("zones-tier", requests, blocks=200, tier_blocks=1000, zones=zones)
    assert result.tenants["quiet"].hit_tokens == 59 * BLOCK_TOKENS
    slow = replace(setting(requests, blocks=200).hardware.gpus, host_bytes_per_second=1e8)
    hardware = replace(setting(requests, blocks=200).hardware, gpus=slow)
    later = result_of("zones-tier", requests, blocks=200, tier_blocks=1000, zones=zones, hardware=hardware)
    assert later.busy_seconds > result.busy_seconds + 0.5


@pytest.mark.parametrize("in_flight", [None, 4])
def test_a_bucket_holds_back_who_asks_for_more_than_its_share_in_a_closed_loop_as_well(in_flight):
    requests = [asked(0.0, "flood", range(1000 * number, 1000 * number + 100)) for number in range(1, 40)]
    at = replace(setting(requests, blocks=2000), in_flight=in_flight)
    result = replay(at, policies(equal_zones(["flood", "quiet"], 2000), 2000, 500.0)["bucket"])
    assert result.tenants["flood"].requests == len(requests)
    assert result.tenants["flood"].withheld_tokens > 0
    # What it asks for, less what it had saved, at half of 500 tokens a second.
    assert result.seconds == pytest.approx(sum(each.prompt_tokens + 4 for each in requests) / 250 - 60, rel=0.05)


@pytest.mark.parametrize("in_flight", [None, 4])
def test_who_has_no_share_gets_nothing_through_a_bucket(in_flight):
    requests = flood_beside_a_quiet_tenant(rounds=3)
    zones = [
        changed(zone, reserved="100%" if zone.tenant == "quiet" else 0) for zone in equal_zones(["quiet", "flood"], 200)
    ]
    result = result_of("bucket", requests, blocks=200, zones=zones, in_flight=in_flight)
    assert {tenant: (each.requests, each.refused) for tenant, each in result.tenants.items()} == {
        "quiet": (3, 0),
        "flood": (0, 21),
    }


def test_a_bucket_lets_through_what_is_less_than_a_block():
    zones = equal_zones([f"tenant-{number}" for number in range(20)], 10)
    assert set(policies(zones, 10, 1000.0)["bucket"].bucket.values()) == {50.0}


@pytest.mark.parametrize("in_flight", [1, 3])
def test_in_a_closed_loop_the_next_request_comes_when_one_ends(in_flight):
    requests = flood_beside_a_quiet_tenant(rounds=8)
    result = result_of("stock", requests, blocks=2000, in_flight=in_flight)
    assert sum(each.requests for each in result.tenants.values()) == len(requests)
    # Nobody waits for the load's own times.
    assert result.seconds < 5
    assert result.utilization > 0.99
    assert max(moment.running for moment in result.moments) <= in_flight
