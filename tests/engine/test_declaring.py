"""Zones declared while others' requests run, or when an engine starts: without traffic, they lend."""

import pytest

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import ZoneConfig

CAPACITY = 100


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def driver(config, clock):
    return Driver(make_scheduler(config, CAPACITY))


def zone(tenant, **fields):
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


def test_a_zone_without_traffic_preempts_no_request(driver, clock):
    driver.declare(zone("burst"))
    running = [driver.send("burst", prompt(12), max_tokens=48) for _ in range(6)]
    driver.step()
    driver.declare(zone("burst"), zone("fresh", reserved=50))
    clock.run(driver, 60)
    assert [request.num_output_tokens for request in running] == [48] * 6
    assert driver.zone("burst").counters.preemptions == 0


def test_an_engine_that_has_just_started_lends_what_is_reserved(driver):
    driver.declare(zone("acme", reserved=60), zone("burst"))
    request = driver.send("burst", prompt(80))
    # The prompt takes two steps, and no time passes meanwhile.
    driver.step()
    driver.step()
    assert driver.finished.get(request.request_id) == "length"


def test_its_first_request_gets_the_reservation_in_the_next_step(driver, clock):
    driver.declare(zone("burst"))
    running = [driver.send("burst", prompt(14), max_tokens=50) for _ in range(6)]
    driver.step()
    driver.declare(zone("burst"), zone("fresh", reserved=50))
    first = driver.send("fresh", prompt(40))
    driver.step()
    driver.step()
    assert driver.finished[first.request_id] == "length"
    clock.run(driver, 500)
    assert [request.num_output_tokens for request in running] == [50] * 6
