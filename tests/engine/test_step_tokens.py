"""The tokens of vLLM's steps, shared out among zones and bounded by latency targets."""

import time

import pytest

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config, with_flags
from tenantzone_contract.zone_config.config import ConfigError, ZoneConfig
from tenantzone_contract.zone_config.zone_terms import LatencyTargets
from tenantzone_runtime.zones.model.step_time import StepLoad


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"), sequences=16, max_batched_tokens=512)


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


def step(driver):
    """Makes one step. Returns the tokens that it computed, by tenant."""
    output, result = driver.schedule()
    driver.update(output, result)
    by_tenant = {}
    for id, tokens in output.num_scheduled_tokens.items():
        tenant = id.split("-")[0]
        by_tenant[tenant] = by_tenant.get(tenant, 0) + tokens
    return by_tenant


def test_a_long_prompt_leaves_others_their_share_of_each_step(config):
    driver = Driver(make_scheduler(config, 1000))
    driver.declare(zone("flood"), zone("acme", weight=3))
    driver.send("flood", prompt(200), max_tokens=4)
    assert step(driver) == {"flood": 512}
    driver.send("acme", prompt(100, seed=2), max_tokens=4)
    assert step(driver) == {"flood": 128, "acme": 384}
    assert step(driver) == {"flood": 128, "acme": 384}
    driver.run()
    assert set(driver.finished.values()) == {"length"}


def test_alone_a_zone_has_all_and_steps_are_stocks(config):
    steps = []
    for zones in (True, False):
        driver = Driver(make_scheduler(config, 1000, zones=zones))
        if zones:
            driver.declare(zone("flood"), zone("acme"))
        for seed in range(3):
            driver.send("flood" if zones else None, prompt(60, seed=seed), max_tokens=4)
        steps.append([sum(step(driver).values()) for _ in range(8)])
    assert steps[0] == steps[1]


def test_decodes_of_all_zones_come_first(config):
    driver = Driver(make_scheduler(config, 1000))
    driver.declare(zone("flood"), zone("acme"))
    driver.send("flood", prompt(240), max_tokens=4)
    step(driver)
    for seed in range(4):
        driver.send("acme", prompt(1, seed=seed), max_tokens=50)
    step(driver)
    driver.send("acme", prompt(100, seed=9), max_tokens=4)
    tokens = step(driver)
    assert tokens["acme"] == 4 + (512 - 4) // 2
    assert sum(tokens.values()) == 512


def test_without_chunked_prefill_nothing_is_shared_and_targets_are_refused(config):
    config = with_flags(config, enable_chunked_prefill=False, max_num_batched_tokens=4096)
    driver = Driver(make_scheduler(config, 1000))
    driver.declare(zone("flood"), zone("acme"))
    driver.send("flood", prompt(100), max_tokens=2)
    driver.send("acme", prompt(100, seed=2), max_tokens=2)
    assert step(driver) == {"flood": 1601, "acme": 1601}
    with pytest.raises(ConfigError, match=r"zones\[0\].latency: targets need chunked prefill"):
        driver.declare(zone("acme", latency=LatencyTargets(token_time_seconds=0.05)))


def test_a_target_bounds_what_others_add_and_is_gone_with_its_field(config):
    driver = Driver(make_scheduler(config, 1000))
    driver.declare(zone("flood"), zone("acme", latency=LatencyTargets(token_time_seconds=0.02)))
    times = driver.scheduler._arbiter.times
    for decodes in range(1, 100):
        for tokens in (0, 100, 300, 500):
            times.observe(StepLoad(tokens, decodes % 7), 0.010 + 0.0001 * tokens)
    driver.send("acme", prompt(2), max_tokens=100)
    step(driver)
    driver.send("flood", prompt(200), max_tokens=4)
    tokens = step(driver)
    assert tokens["acme"] == 1
    assert 64 <= tokens["flood"] <= 120
    assert driver.zone("flood").counters.withheld_tokens > 400
    driver.declare(zone("flood"), zone("acme"))
    assert step(driver) == {"acme": 1, "flood": 511}
    driver.run()
    assert set(driver.finished.values()) == {"length"}


def test_what_a_zone_gets_is_measured_and_judged(config):
    driver = Driver(make_scheduler(config, 1000))
    driver.declare(zone("acme", latency=LatencyTargets(token_time_seconds=60.0, first_token_seconds=60.0)))
    driver.send("acme", prompt(2), max_tokens=30)
    driver.run()
    driver.scheduler.let_time_pass()
    outcomes = driver.zone("acme").outcomes
    assert {name: outcome.reason for name, outcome in outcomes.items()} == {"token_time": "Met", "first_token": "Met"}
    assert driver.scheduler._arbiter.times.knows(has_prompts=False)
    driver.declare(zone("acme"))
    driver.scheduler._watch._judged = 0.0
    driver.scheduler.let_time_pass()
    assert driver.zone("acme").outcomes == {}


def test_the_time_in_which_there_was_no_target_is_no_time_between_two_tokens(config, monkeypatch):
    passed = 0.0
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + passed)
    driver = Driver(make_scheduler(config, 1000))
    targeted = zone("acme", latency=LatencyTargets(token_time_seconds=60.0))
    driver.declare(targeted)
    driver.send("acme", prompt(2), max_tokens=30)
    for _ in range(5):
        step(driver)
    driver.declare(zone("acme"))
    step(driver)
    passed = 600.0
    step(driver)
    driver.declare(targeted)
    driver.run()
    driver.scheduler.let_time_pass()
    outcome = driver.zone("acme").outcomes["token_time"]
    assert outcome.reason == "Met"
    assert outcome.actual is not None
    assert outcome.actual < 60.0


def test_who_waits_and_is_not_served_at_all_misses_its_target(config, monkeypatch):
    passed = 0.0
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + passed)
    driver = Driver(make_scheduler(config, 100))
    driver.declare(zone("flood"), zone("acme", latency=LatencyTargets(first_token_seconds=2.0)))
    driver.send("flood", prompt(90), max_tokens=900)
    for _ in range(5):
        step(driver)
    driver.send("acme", prompt(20, seed=2), max_tokens=4)
    for _ in range(2):
        step(driver)
        driver.scheduler.let_time_pass()
        passed += 30.0
    driver.scheduler.let_time_pass()
    outcome = driver.zone("acme").outcomes["first_token"]
    assert (outcome.met, outcome.reason) == (False, "Blocks")
    assert outcome.actual is not None
    assert 29.0 < outcome.actual < 61.0


def test_who_waits_no_longer_than_its_target_is_not_judged_yet(config):
    driver = Driver(make_scheduler(config, 100))
    driver.declare(zone("flood"), zone("acme", latency=LatencyTargets(first_token_seconds=600.0)))
    driver.send("flood", prompt(90), max_tokens=900)
    step(driver)
    driver.send("acme", prompt(20, seed=2), max_tokens=4)
    step(driver)
    driver.scheduler.let_time_pass()
    assert driver.zone("acme").outcomes["first_token"].reason == "NoTraffic"
