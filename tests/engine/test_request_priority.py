"""A request's own priority, in an engine with vLLM's priority scheduling: it only orders requests inside its zone."""

import pytest

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config, with_flags
from tenantzone_contract.zone_config.config import ZoneConfig


@pytest.fixture
def driver(tmp_path):
    """A scheduler with one request at a time."""
    config = with_flags(vllm_config(tmp_path, sequences=1), policy="priority")
    driver = Driver(make_scheduler(config, 100))
    driver.declare(*(ZoneConfig(name=name, tenant=name, generation=1) for name in ("acme", "gold")))
    return driver


def order(driver):
    """The tenant and the priority of each request, in scheduling order."""
    scheduled = []
    priorities = {name: request.priority for name, request in driver.scheduler.requests.items()}
    while driver.scheduler.has_unfinished_requests():
        scheduled += [(name.rpartition("-")[0], priorities[name]) for name in driver.step()]
    return scheduled


def test_it_orders_a_zones_requests_and_puts_none_before_another_zones(driver):
    for priority in (5, -1000, 0):
        driver.send("acme", prompt(2), priority=priority)
    for priority in (7, 3, 3):
        driver.send("gold", prompt(2), priority=priority)
    found = order(driver)
    assert [priority for tenant, priority in found if tenant == "acme"] == [-1000, 0, 5]
    assert [priority for tenant, priority in found if tenant == "gold"] == [3, 3, 7]
    assert [{tenant for tenant, _ in found[turn : turn + 2]} for turn in (0, 2, 4)] == [{"acme", "gold"}] * 3


def test_it_takes_no_running_request_of_another_zone_off(driver):
    running = driver.send("gold", prompt(2), max_tokens=20)
    driver.step()
    urgent = driver.send("acme", prompt(2), priority=-1000)
    for _ in range(10):
        assert driver.step() == [running.request_id]
    assert running.num_preemptions == urgent.num_output_tokens == 0


def test_without_priority_scheduling_it_changes_nothing(tmp_path):
    driver = Driver(make_scheduler(vllm_config(tmp_path, sequences=1), 100))
    driver.declare(ZoneConfig(name="acme", tenant="acme", generation=1))
    for priority in (5, -1000, 0):
        driver.send("acme", prompt(2), priority=priority)
    assert [priority for _, priority in order(driver)] == [5, -1000, 0]


def test_of_a_zones_running_requests_the_least_urgent_gives_its_blocks_up_first(tmp_path):
    config = with_flags(vllm_config(tmp_path, sequences=3), policy="priority")
    driver = Driver(make_scheduler(config, 13))
    driver.declare(ZoneConfig(name="acme", tenant="acme", generation=1))
    urgent, lazy, usual = (driver.send("acme", prompt(3), max_tokens=200, priority=priority) for priority in (-5, 9, 0))
    while not (urgent.num_preemptions or lazy.num_preemptions or usual.num_preemptions):
        driver.step()
    assert (urgent.num_preemptions, lazy.num_preemptions, usual.num_preemptions) == (0, 1, 0)
