"""A zone's own prefix index, inside vLLM's real scheduler: it goes with the last prefix in it."""

import weakref

import pytest

from tenantzone_contract.config import ZoneConfig
from tests.engine.harness import BLOCK_TOKENS, Driver, make_scheduler, prompt, vllm_config


@pytest.fixture
def driver(tmp_path):
    return Driver(make_scheduler(vllm_config(tmp_path, max_batched_tokens=4096), 100))


def zone(tenant):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1)


def prefix_index(driver, tenant):
    """A weak reference: whether it is still kept."""
    pool = driver.scheduler.block_pool
    with pool.acting_for(driver.zone(tenant)):
        return weakref.ref(pool.cached_block_hash_to_block)


def test_a_zone_that_lost_its_cache_keeps_no_empty_prefix_index(driver):
    """Its table would stay as large as it ever was."""
    driver.declare(zone("acme"))
    driver.ask("acme", prompt(50, seed=1))
    index = prefix_index(driver, "acme")
    assert index() is not None
    assert driver.scheduler.reset_prefix_cache()
    assert index() is None
    driver.ask("acme", prompt(50, seed=1))
    assert driver.cached_tokens(driver.ask("acme", prompt(50, seed=1))) == 50 * BLOCK_TOKENS


def test_a_zone_that_lost_its_cache_still_finds_prefixes_that_are_in_use(driver):
    driver.declare(zone("acme"))
    driver.ask("acme", prompt(20, seed=1))
    driver.send("acme", prompt(20, seed=2), max_tokens=30)
    driver.step()
    driver.scheduler.block_pool.evict(driver.zone("acme"), "idle")
    late = driver.send("acme", prompt(20, seed=2))
    driver.run()
    assert driver.cached_tokens(late) == 20 * BLOCK_TOKENS
