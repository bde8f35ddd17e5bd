"""What vLLM's cache keeps for a zone that has a ttl, or that stores nothing."""

import pytest
from vllm.config import KVEventsConfig

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.zone_terms import Retention
from tests.engine.clock import Clock
from tests.engine.measured import counters, zone

CAPACITY = 100
NO_STORE = Retention(no_store=True)


@pytest.fixture
def driver(tmp_path):
    config = vllm_config(tmp_path, max_batched_tokens=512)
    config.kv_events_config = KVEventsConfig(enable_kv_cache_events=True, publisher="null")
    driver = Driver(make_scheduler(config, CAPACITY))
    yield driver
    driver.scheduler.shutdown()


def found(driver, tenant, tokens, **arguments):
    """Tokens of a new request's prompt that were cached."""
    return driver.cached_tokens(driver.ask(tenant, tokens, **arguments))


def hashed(driver):
    """Blocks that a request could find."""
    return [block for block in driver.scheduler.block_pool.blocks if block.block_hash is not None]


def test_what_was_not_used_for_the_ttl_is_not_found_any_more(clock: Clock, driver):
    driver.declare(zone("acme", retention=Retention(ttl_seconds=60.0)), zone("burst"))
    for tenant in ("acme", "burst"):
        driver.ask(tenant, prompt(10, seed=3))
    clock.seconds += 59.0
    driver.scheduler.let_time_pass()
    assert found(driver, "acme", prompt(10, seed=3)) > 0
    clock.seconds += 60.0
    driver.scheduler.let_time_pass()
    assert driver.zone("acme").held == 0
    assert found(driver, "acme", prompt(10, seed=3)) == 0
    assert found(driver, "burst", prompt(10, seed=3)) > 0


def test_nothing_of_a_zone_that_stores_nothing_is_indexed_reported_or_found(driver):
    driver.declare(zone("acme", retention=NO_STORE))
    for _ in range(3):
        assert found(driver, "acme", prompt(10, seed=3), max_tokens=40) == 0
    assert hashed(driver) == []
    assert driver.scheduler.kv_cache_manager.take_events() == []
    assert driver.zone("acme").held == 0
    assert counters(driver).evicted == {}
    assert counters(driver).prefix_query_tokens == 0


def test_a_zone_that_comes_to_store_nothing_loses_what_is_cached_and_what_is_in_use_is_not_found(driver):
    driver.declare(zone("acme"), zone("burst"))
    driver.ask("acme", prompt(5, seed=1))
    driver.ask("burst", prompt(5, seed=1))
    request = driver.send("acme", prompt(10, seed=2), max_tokens=20)
    driver.step()
    driver.declare(zone("acme", retention=NO_STORE), zone("burst"))
    owner = driver.scheduler.block_pool.ledger.owner
    assert {owner[block.block_id].spec.tenant for block in hashed(driver)} == {"burst"}
    assert not driver.zone("acme").cached
    assert found(driver, "acme", prompt(10, seed=2)) == 0
    driver.run()
    assert request.num_output_tokens == 20
    assert driver.zone("acme").held == 0


def test_a_zone_that_stores_again_finds_what_came_later(driver):
    driver.declare(zone("acme", retention=NO_STORE))
    driver.ask("acme", prompt(10, seed=3))
    driver.declare(zone("acme"))
    assert found(driver, "acme", prompt(10, seed=3)) == 0
    assert found(driver, "acme", prompt(10, seed=3)) > 0


def test_a_preempted_request_of_a_zone_that_stores_nothing_computes_all_again(driver):
    driver.declare(zone("acme", retention=NO_STORE))
    request = driver.send("acme", prompt(10, seed=3), max_tokens=40)
    for _ in range(4):
        driver.step()
    driver.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert driver.zone("acme").held == 0
    driver.run()
    assert driver.finished[request.request_id] == "length"
