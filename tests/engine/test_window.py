"""Sliding-window models: tokens outside of the attention window need no block."""

import pytest

from hack.harness.scheduler import BLOCK_TOKENS, Driver, make_scheduler, prompt, vllm_config, without_prefix_caching
from tenantzone_contract.zone_config.config import ZoneConfig

CAPACITY = 60
WINDOW = 4 * BLOCK_TOKENS


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"), max_batched_tokens=16 * BLOCK_TOKENS)


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


@pytest.fixture
def driver(config):
    """A scheduler whose pool is mostly cached by a zone that is not quiet."""
    driver = Driver(make_scheduler(config, CAPACITY, window=WINDOW))
    driver.declare(zone("acme"), zone("burst"), zone("calm"))
    return driver


def fill_with_cache(driver, blocks):
    for _ in range(20):
        if driver.zone("burst").held < blocks:
            driver.ask("burst", prompt(4))


@pytest.mark.parametrize(("cached", "prefix", "blocks"), [(42, 8, 23), (48, 8, 26), (42, 12, 26), (48, 12, 23)])
def test_a_request_with_a_long_prefix_is_admitted(driver, cached, prefix, blocks):
    """vLLM counts its blocks twice, and only the first count knows that a window frees some."""
    head = prompt(prefix, seed=1, extra=0)
    driver.ask("acme", [*head, 5])
    fill_with_cache(driver, cached)
    request = driver.send("acme", head + prompt(blocks - prefix, extra=3), max_tokens=4)
    driver.run(50)
    assert driver.finished[request.request_id] == "length"


def test_one_that_does_not_fit_yet_delays_no_other(driver):
    head = prompt(8, seed=1, extra=0)
    driver.ask("acme", [*head, 5])
    fill_with_cache(driver, 42)
    driver.send("acme", head + prompt(15, extra=3), max_tokens=4)
    driver.step()
    calm = driver.send("calm", prompt(0, extra=3), max_tokens=20)
    for _ in range(21):
        driver.step()
    assert driver.finished.get(calm.request_id) == "length"


def test_without_prefix_caching_too_blocks_leave_with_the_window(config):
    """A request that is longer than its lowered limit goes on with the blocks that the window frees."""
    driver = Driver(make_scheduler(without_prefix_caching(config), CAPACITY, window=WINDOW))
    driver.declare(zone("acme"))
    request = driver.send("acme", prompt(21, extra=1), max_tokens=1)
    driver.declare(zone("acme", limit=20))
    driver.run(3)
    assert driver.finished.get(request.request_id) == "length"
    assert driver.zone("acme").counters.preemptions == 0
