"""``--watermark``: blocks that vLLM keeps free for running requests when it admits more. No zone pays for it."""

import pytest

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config, with_flags
from tenantzone_contract.zone_config.config import ZoneConfig

CAPACITY = 100


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


@pytest.mark.parametrize("watermark", [0.02, 0.1])
@pytest.mark.parametrize(("reserved", "blocks"), [(20, 19), (5, 1)])
@pytest.mark.shows("`--watermark`")
def test_a_request_that_fills_its_zones_limit_is_admitted(config, watermark, reserved, blocks):
    driver = Driver(make_scheduler(with_flags(config, watermark=watermark), CAPACITY))
    driver.declare(zone("acme", reserved=reserved, limit=reserved), zone("burst", limit=30))
    running = driver.send("burst", prompt(3), max_tokens=200)
    driver.step()
    request = driver.send("acme", prompt(blocks), max_tokens=10)
    for _ in range(12):
        driver.step()
    assert not running.is_finished()
    assert driver.finished[request.request_id] == "length"


@pytest.mark.shows("`--watermark`")
def test_a_zone_without_a_reservation_leaves_it_free(config):
    driver = Driver(make_scheduler(with_flags(config, watermark=0.1), CAPACITY))
    driver.declare(zone("acme"), zone("burst"))
    running = driver.send("burst", prompt(59), max_tokens=10)
    driver.step()
    request = driver.send("acme", prompt(34), max_tokens=2)
    for _ in range(5):
        driver.step()
    assert not running.is_finished()
    assert request.num_computed_tokens == 0
    driver.run()
    assert driver.finished[request.request_id] == "length"
