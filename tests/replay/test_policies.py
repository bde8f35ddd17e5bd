"""The policies that zones are compared with, each by its distinguishing behaviour."""

from dataclasses import replace

import pytest

from tenantzone_replay.simulation.measures import Target, TenantMeasures
from tenantzone_replay.simulation.policies import Policy, changed, equal_zones, part_of, policies, scaled
from tenantzone_replay.simulation.replay import replay
from tenantzone_replay.simulation.tenants_at_work import TenantsAtWork
from tenantzone_replay.traces.load import Asked
from tenantzone_runtime.engine.modelless.engine_shape import EngineShape
from tests.replay.loads import BLOCK_TOKENS, asked, flood_next_to_a_quiet_tenant, setting

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
    requests = flood_next_to_a_quiet_tenant()
    assert result_of("priority", requests, blocks=200).tenants["quiet"].hit_tokens < 0.5 * solo
    assert result_of("radix-priority", requests, blocks=200).tenants["quiet"].hit_tokens >= 0.99 * solo


def test_random_lru_keeps_by_chance_what_lru_loses_in_a_loop():
    # A loop over more blocks than fit is LRU's worst case.
    requests = [asked(float(number), "quiet", [number % 60 + 1]) for number in range(600)]
    assert result_of("salted", requests, blocks=50).hit_rate == 0
    found = result_of("random-lru", requests, blocks=50)
    assert 0.05 < found.hit_rate < 0.6
    assert found.tenants["quiet"].evicted["lru"] > 0


def test_a_tier_finds_again_what_the_engine_has_evicted():
    requests = flood_next_to_a_quiet_tenant(rounds=30)
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
    # Its requests' tokens, less what it had saved, at half of 500 tokens a second.
    assert result.seconds == pytest.approx(sum(each.prompt_tokens + 4 for each in requests) / 250 - 60, rel=0.05)


@pytest.mark.parametrize("in_flight", [None, 4])
def test_who_has_no_share_gets_nothing_through_a_bucket(in_flight):
    requests = flood_next_to_a_quiet_tenant(rounds=3)
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
    requests = flood_next_to_a_quiet_tenant(rounds=8)
    result = result_of("stock", requests, blocks=2000, in_flight=in_flight)
    assert sum(each.requests for each in result.tenants.values()) == len(requests)
    # Requests do not wait for the load's own times.
    assert result.seconds < 5
    assert result.utilization > 0.99
    assert max(moment.running for moment in result.moments) <= in_flight


def test_what_the_engine_refuses_for_its_length_takes_nothing_out_of_a_bucket():
    short = [asked(1.0 + 0.1 * number, "flood", range(number, number + 2)) for number in range(20)]
    long = [asked(0.0, "flood", range(1000)) for _ in range(10)]
    bucket = policies(equal_zones(["flood", "quiet"], 200), 200, 500.0)["bucket"]
    alone, together = (replay(setting(requests, blocks=200), bucket) for requests in (short, [*long, *short]))
    assert (together.tenants["flood"].requests, together.tenants["flood"].refused) == (20, 10)
    assert together.tenants["flood"].withheld_tokens == 0
    assert together.seconds == pytest.approx(alone.seconds)


def test_requests_of_a_tenant_pass_its_bucket_in_their_order():
    """However long the step takes in which the last one arrives and the one before it becomes free to go."""
    sent = []

    class Scheduler:
        shape = EngineShape(blocks=1000, longest=100_000)

        def send(self, name, *_, **__):
            sent.append(int(name))

    requests = [Asked(0.0, 600, 1, tenant="a"), Asked(1.0, 100, 1, tenant="a"), Asked(8.0, 10, 1, tenant="a")]
    policy = Policy("bucket", "of ten tokens a second", bucket={"a": 10.0})
    tenants = TenantsAtWork(iter(requests), Scheduler(), policy, {"a": TenantMeasures()}, Target(), 0.0)
    for now in (0.0, 5.0, 30.0):
        tenants.send_due(now)
    assert sent == [0, 1, 2]


@pytest.mark.parametrize("policy", ["salted", "priority", "radix-priority"])
def test_requests_that_come_at_one_time_are_served_in_the_order_of_the_load(policy):
    requests = [asked(0.0, "one", range(100 * number, 100 * number + 4)) for number in range(1, 31)]
    served = []
    at = replace(setting(requests, blocks=200, seats=1), on_answered=lambda number, *_: served.append(number))
    replay(at, policies(equal_zones(["one"], 200), 200, 1000.0)[policy])
    assert served == list(range(30))


@pytest.mark.parametrize("policy", ["salted", "zones"])
def test_what_runs_all_the_time_has_its_seats_all_the_time(policy):
    requests = [asked(0.0, "one", range(100 * number, 100 * number + 4), output_tokens=200) for number in range(1, 9)]
    result = result_of(policy, requests, blocks=400)
    assert result.seconds % 1.0 > 0.3, "the last look was some time before the end"
    assert result.tenants["one"].seat_seconds / result.seconds == pytest.approx(8, rel=0.1)


@pytest.mark.parametrize("hundredths", range(1, 101))
def test_a_part_of_a_hundred_blocks_is_as_many_as_are_named(hundredths):
    assert part_of(100, hundredths / 100) == hundredths
    (zone,) = equal_zones(["one"], 100)
    assert scaled(zone, hundredths / 100).reserved == hundredths
