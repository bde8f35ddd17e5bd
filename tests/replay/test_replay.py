"""Loads on vLLM's real schedulers in virtual time, by each policy."""

import dataclasses
import random

import pytest

from hack.harness.scheduler import Driver, make_scheduler, vllm_config
from tenantzone_replay.results.as_json import as_json
from tenantzone_replay.results.tables import tables
from tenantzone_replay.simulation.clock import VirtualClock
from tenantzone_replay.simulation.locality import Locality
from tenantzone_replay.simulation.policies import NAMES, changed, equal_zones, policies
from tenantzone_replay.simulation.replay import replay
from tests.replay.loads import BLOCK_TOKENS, asked, flood_next_to_a_quiet_tenant, setting


def results(requests, *names, blocks, zones=None, **more):
    at = dataclasses.replace(setting(requests, blocks=blocks), **more)
    every = policies(
        zones or equal_zones(list(at.profile.demand), blocks), blocks, at.hardware.prompt_tokens_per_second
    )
    return [replay(at, every[name]) for name in names]


@pytest.fixture(scope="module")
def flooded():
    """By each policy, the quiet tenant next to a flood that turns the cache over."""
    return dict(zip(NAMES, results(flood_next_to_a_quiet_tenant(), *NAMES, blocks=200), strict=True))


def test_all_requests_end_by_each_policy(flooded):
    for result in flooded.values():
        assert {tenant: each.requests for tenant, each in result.tenants.items()} == {"quiet": 60, "flood": 420}
        assert result.seconds > 59
        assert 0 < result.utilization < 1


def test_a_quiet_tenant_keeps_its_hits_next_to_a_flood_where_a_floor_holds(flooded):
    solo = (60 - 1) * 20 * BLOCK_TOKENS
    for name in ("partition", "zones", "zones-no-lending", "infinite"):
        assert flooded[name].tenants["quiet"].hit_tokens >= 0.99 * solo, name
    for name in ("stock", "salted"):
        assert flooded[name].tenants["quiet"].hit_tokens < 0.5 * solo, name


def test_what_is_evicted_is_counted_by_reason(flooded):
    assert set(flooded["salted"].tenants["flood"].evicted) == {"lru"}
    assert flooded["soft-quota"].tenants["flood"].evicted["quota"] > 0
    assert set(flooded["partition"].tenants["flood"].evicted) == {"limit"}
    assert flooded["zones"].tenants["flood"].evicted["own"] > 0
    assert not flooded["infinite"].tenants["flood"].evicted


def test_no_zone_holds_more_than_its_partition(flooded):
    moments = flooded["partition"].moments
    assert 60 < max(moment.held["flood"] for moment in moments) <= 100
    assert max(moment.held["flood"] for moment in flooded["salted"].moments) > 150


@pytest.mark.parametrize("policy", ["salted", "zones"])
def test_each_request_finds_what_it_finds_on_a_scheduler_that_hashes_real_tokens(tmp_path, policy):
    rng = random.Random(1)
    requests = [asked(100.0 * number, f"tenant-{number % 2}", _begins(rng)) for number in range(60)]
    (result,) = results(requests, policy, blocks=60)
    tenants = list(result.tenants)
    clock, found = VirtualClock(), dict.fromkeys(tenants, 0)
    with clock.in_force():
        driver = Driver(make_scheduler(vllm_config(tmp_path), 60, zones=policy == "zones"))
        if policy == "zones":
            driver.declare(*equal_zones(tenants, 60))
        for number, request in enumerate(requests):
            clock.seconds = 1.0 + request.arrival
            if policy == "zones":
                driver.scheduler.let_time_pass()
            tokens = [token for block in request.content for token in _tokens(block)]
            own = random.Random(f"own {number}").choices(range(3, 128), k=request.prompt_tokens - len(tokens))
            as_what = {"client_salt": request.tenant} if policy == "salted" else {}
            sent = driver.ask(
                request.tenant if policy == "zones" else None, tokens + own, max_tokens=request.output_tokens, **as_what
            )
            found[request.tenant] += driver.cached_tokens(sent)
    assert {tenant: each.hit_tokens for tenant, each in result.tenants.items()} == found
    assert all(found.values())
    assert any(each.evicted for each in result.tenants.values())


def _begins(rng):
    first = rng.randrange(6)
    return [first * 100 + number for number in range(1, rng.randrange(2, 20))]


def _tokens(block):
    return random.Random(block).choices(range(3, 128), k=BLOCK_TOKENS)


def test_prefixes_cross_tenants_only_in_stock():
    requests = [asked(float(number), f"tenant-{number % 2}", range(1, 11)) for number in range(2)]
    shared, salted, zones = results(requests, "stock", "salted", "zones", blocks=100)
    assert shared.tenants["tenant-1"].hit_tokens == 10 * BLOCK_TOKENS
    assert salted.tenants["tenant-1"].hit_tokens == zones.tenants["tenant-1"].hit_tokens == 0


def test_a_token_bucket_holds_back_who_asks_for_more_than_its_share():
    requests = [asked(0.0, "flood", range(1000 * number, 1000 * number + 100)) for number in range(1, 40)]
    requests += [asked(5.0, "quiet", range(1, 5))]
    at = setting(requests, blocks=2000)
    zones = equal_zones(["flood", "quiet"], 2000)
    # So slow that the bucket's depth, a minute's tokens, is exceeded.
    slow = policies(zones, 2000, tokens_per_second=500.0)["bucket"]
    result = replay(at, slow)
    assert result.tenants["flood"].withheld_tokens > 0
    assert result.tenants["flood"].first_token.quantile(1.0) > 60
    assert result.tenants["quiet"].withheld_tokens == 0
    assert result.tenants["quiet"].first_token.quantile(1.0) < 1


def test_a_request_that_no_engine_could_hold_is_refused():
    requests = [asked(0.0, "acme", range(1, 60)), asked(1.0, "acme", range(1, 5))]
    (stock,) = results(requests, "stock", blocks=40)
    assert (stock.tenants["acme"].refused, stock.tenants["acme"].requests) == (1, 1)
    assert stock.attainment == 0.5


def answer_that_outgrows_its_share():
    """An answer of 40 tokens, in a zone whose six blocks have room for 16 of them; later another tenant asks."""
    return [asked(0.0, "acme", range(1, 6), own_tokens=0, output_tokens=40), asked(100.0, "burst", [100])]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("steps_in_flight", [1, 2])
def test_a_replay_ends_in_which_nothing_can_run_any_more(steps_in_flight):
    requests = answer_that_outgrows_its_share()
    (result,) = results(requests, "zones-no-lending", blocks=12, steps_in_flight=steps_in_flight)
    assert result.tenants["burst"].requests == 1
    assert result.seconds >= 100


def test_an_answer_that_ends_with_an_error_is_refused_however_much_of_it_came():
    (result,) = results(answer_that_outgrows_its_share(), "zones-no-lending", blocks=12)
    acme = result.tenants["acme"]
    assert (acme.requests, acme.refused, acme.cut_short, acme.output_tokens) == (0, 1, 0, 0)
    assert result.attainment == 0.5


def test_an_answer_that_is_cut_short_is_counted_and_not_in_time():
    cut, whole = results(answer_that_outgrows_its_share(), "partition", "stock", blocks=12)
    acme = cut.tenants["acme"]
    assert (acme.requests, acme.refused, acme.cut_short, acme.attained) == (1, 0, 1, 0)
    assert 0 < acme.output_tokens < 40
    assert (whole.cut_short, whole.attainment) == (0, 1.0)
    header, *_ = tables([cut, whole]).splitlines()
    assert header.endswith("cut short")
    assert "cut short" not in tables([whole])
    reported = as_json([cut], Locality())["policies"][0]["tenants"]
    assert {tenant: each["cutShort"] for tenant, each in reported.items()} == {"acme": 1, "burst": 0}


def test_two_runs_of_one_load_are_the_same():
    requests = flood_next_to_a_quiet_tenant(rounds=10)
    first, second = (dataclasses.replace(*results(requests, "zones", blocks=200), took_seconds=0.0) for _ in range(2))
    assert first.moments == second.moments
    assert first.steps == second.steps
    assert first.first_token().curve() == second.first_token().curve()


def test_zones_of_a_pool_are_used_as_they_are():
    requests = flood_next_to_a_quiet_tenant(rounds=10)
    bound = [changed(zone, limit=110, reserved=50) for zone in equal_zones(["quiet", "flood"], 200)]
    (result,) = results(requests, "zones", blocks=200, zones=bound)
    assert max(moment.held["flood"] for moment in result.moments) <= 110
