"""The metrics that a scrape of vLLM's real scheduler reports."""

import pytest

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.reports.report import ConfigStatus
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants, UnknownTenantTemplate
from tenantzone_runtime.housekeeping.report.reporting import make_figures
from tests.engine.measured import abort, figures_of, zone

CAPACITY = 100
REGISTERING = UnknownTenants(mode="AutoRegister", template=UnknownTenantTemplate(priority=3))


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"), max_batched_tokens=1024)


@pytest.fixture
def driver(config):
    return Driver(make_scheduler(config, CAPACITY))


def test_figures_say_what_the_zone_is_and_does(driver):
    driver.declare(zone("acme", reserved=30, limit=60, weight=2, priority=7), zone("burst"))
    driver.send("acme", prompt(9), max_tokens=80)
    driver.send("acme", prompt(55))
    driver.step()
    acme = figures_of(driver)["acme"]
    assert (acme.name, acme.in_use, acme.cached, acme.reserved, acme.limit) == ("acme-zone", 10, 0, 30, 60)
    assert (acme.running_requests, acme.waiting_requests, acme.weight, acme.priority) == (1, 1, 2, 7)
    assert (acme.state, figures_of(driver)["burst"].state) == ("Active", "Idle")


def test_figures_do_not_change_when_the_zone_does(driver):
    driver.declare(zone("acme"))
    before = figures_of(driver)["acme"]
    driver.ask("acme", prompt(9))
    assert (before.counters.prompt_tokens, before.counters.queue_time.count, before.counters.requests) == (0, 0, {})


def test_a_removed_zone_is_in_no_figures(driver):
    driver.declare(zone("acme"), zone("burst"))
    running = driver.send("burst", prompt(9), max_tokens=80)
    driver.step()
    driver.declare(zone("acme"))
    assert "burst" in driver.scheduler.tenancy.ledger.zones, "its request runs"
    assert set(figures_of(driver)) == {"acme"}
    assert driver.finished == {}
    abort(driver, running)


def test_registered_zones_beyond_the_cap_are_one_in_the_figures(driver):
    driver.scheduler.tenancy.ledger.overflow.max_apart = 1
    driver.declare(zone("acme"), unknown_tenants=REGISTERING)
    assert set(figures_of(driver)) == {"acme"}
    for tenant in ("one", "two", "three"):
        driver.ask(tenant, prompt(3), max_tokens=2)
    driver.send("two", prompt(5), max_tokens=50)
    driver.step()
    reported = figures_of(driver)
    assert set(reported) == {"acme", "one", "overflow"}
    overflow = reported["overflow"]
    assert (overflow.name, overflow.in_use, overflow.cached, overflow.limit) == ("overflow", 6, 6, 2 * CAPACITY)
    assert (overflow.running_requests, overflow.weight, overflow.priority, overflow.state) == (1, 2, 3, "Active")
    assert overflow.counters.requests == {"length": 2}
    assert overflow.counters.queue_time.count == 3
    driver.declare(zone("acme"))
    driver.run()
    left = figures_of(driver)["overflow"]
    assert (left.in_use, left.cached, left.state, left.counters.queue_time.count) == (0, 0, "Evicted", 3)


def test_figures_name_the_pool_of_the_config_in_force(driver):
    def pool():
        figures = make_figures(driver.served, ConfigStatus(), {}, pod="p", started_unix_time=0.0)
        return figures.pool_namespace, figures.pool

    assert pool() == ("", "")
    driver.declare(zone("acme"))
    assert pool() == ("test", "pool")
