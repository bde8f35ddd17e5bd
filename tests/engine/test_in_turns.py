"""Configs and time change zones in turns: no step waits until thousands of them are done."""

import pytest

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_config.config import Watermarks
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import Idle
from tenantzone_runtime.engine.core import beside_steps
from tests.engine.measured import zone
from tests.engine.pauses import in_each_pause

CAPACITY = 100
NAMES = [f"tenant-{number}" for number in range(10)]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def driver(config):
    return Driver(make_scheduler(config, CAPACITY))


@pytest.fixture(autouse=True)
def _one_block_at_once(monkeypatch):
    monkeypatch.setattr(beside_steps, "BLOCKS_AT_ONCE", 1)


def test_steps_are_made_while_a_config_comes_into_force(driver, monkeypatch):
    """In each step, at most the engine's blocks are promised, whichever zones follow which config."""
    driver.declare(*(zone(name, reserved=20 if name in NAMES[:5] else 0) for name in NAMES))
    request = driver.send(NAMES[0], prompt(3), max_tokens=40)
    promised = []

    def step():
        assert driver.step() == [request.request_id]
        driver.check()
        promised.append(driver.scheduler.tenancy.ledger.totals.promised)

    with in_each_pause(monkeypatch, step):
        driver.declare(*(zone(name, reserved=0 if name in NAMES[:5] else 20) for name in NAMES))
    assert len(promised) == 10
    assert max(promised) <= CAPACITY
    assert [driver.zone(name).spec.quota.reserved for name in NAMES] == [0] * 5 + [20] * 5


def test_requests_that_were_there_before_have_a_zone_as_soon_as_there_is_one(driver, monkeypatch):
    early = driver.send(None, prompt(3), max_tokens=40)
    driver.step()

    def step():
        assert early.zone is not None
        assert driver.step() == [early.request_id]
        driver.check()

    with in_each_pause(monkeypatch, step) as pauses:
        driver.declare(*map(zone, NAMES))
    assert len(pauses) == 10


def test_the_cache_of_a_zone_that_leaves_goes_bit_by_bit_and_whole(driver, monkeypatch):
    driver.declare(zone("acme"), zone("burst"))
    driver.ask("acme", prompt(20))
    kept = []
    acme = driver.zone("acme")
    with in_each_pause(monkeypatch, lambda: kept.append(len(acme.cached))):
        driver.declare(zone("burst"))
    assert kept == list(range(19, -1, -1))
    assert "acme" not in driver.scheduler.tenancy.ledger.zones
    driver.check()


def test_one_whose_tenant_comes_back_meanwhile_is_registered_with_what_is_left(driver, monkeypatch):
    anybody = {"unknown_tenants": UnknownTenants(mode="AutoRegister")}
    driver.declare(zone("acme"), **anybody)
    driver.ask("acme", prompt(20))
    sent = []

    def come_back():
        if len(driver.zone("acme").cached) == 15:
            sent.append(driver.send("acme", prompt(1), max_tokens=2))

    with in_each_pause(monkeypatch, come_back):
        driver.declare(**anybody)
    acme = driver.zone("acme")
    assert (acme.spec.auto_registered, acme.leaving, len(acme.cached)) == (True, False, 15)
    driver.run()
    assert driver.finished[sent[0].request_id] == "length"
    driver.check()


def test_a_lowered_limit_takes_a_cache_bit_by_bit(driver, monkeypatch):
    driver.declare(zone("acme"))
    driver.ask("acme", prompt(20))
    kept = []
    with in_each_pause(monkeypatch, lambda: kept.append(len(driver.zone("acme").cached))):
        driver.declare(zone("acme", limit=12))
    assert kept[:8] == [19, 18, 17, 16, 15, 14, 13, 12]
    assert len(driver.zone("acme").cached) == 12
    driver.check()


def test_an_idle_zones_cache_goes_bit_by_bit(driver, monkeypatch):
    driver.declare(zone("acme", idle=Idle(after_seconds=0, evict_after_seconds=0)), zone("burst"))
    driver.ask("acme", prompt(20))
    burst = driver.send("burst", prompt(1), max_tokens=100)

    def step():
        assert driver.step() == [burst.request_id]

    with in_each_pause(monkeypatch, step) as pauses:
        driver.scheduler.let_time_pass()
    assert len(pauses) >= 20
    assert (len(driver.zone("acme").cached), driver.zone("acme").state) == (0, "Evicted")
    driver.check()


def test_what_the_watermark_asks_for_goes_bit_by_bit(driver, monkeypatch):
    driver.declare(zone("acme"), watermarks=Watermarks(low=0.5, high=0.8))
    driver.ask("acme", prompt(60))
    with in_each_pause(monkeypatch, driver.check) as pauses:
        driver.scheduler.let_time_pass()
    assert len(pauses) >= 40
    assert driver.scheduler.block_pool.free_block_queue.num_free_blocks == 80


def test_a_request_of_an_idle_zone_stops_the_eviction_of_its_cache(driver, monkeypatch):
    driver.declare(zone("acme", idle=Idle(after_seconds=0, evict_after_seconds=0)))
    driver.ask("acme", prompt(20))

    def ask():
        if len(driver.zone("acme").cached) == 10:
            driver.send("acme", prompt(1), max_tokens=100)

    with in_each_pause(monkeypatch, ask):
        driver.scheduler.let_time_pass()
    assert len(driver.zone("acme").cached) == 10
    driver.check()


def test_no_block_is_lost_when_a_tenant_comes_back_to_less_than_is_left_of_its_cache(driver, monkeypatch):
    anybody = {"unknown_tenants": UnknownTenants(mode="AutoRegister", template=UnknownTenantTemplate(limit=10))}
    driver.declare(zone("acme"), **anybody)
    driver.ask("acme", prompt(20, seed=1))
    acme = driver.zone("acme")
    sent = []

    def come_back():
        if len(acme.cached) == 15 and not sent:
            sent.append(driver.send("acme", prompt(1), max_tokens=2))

    with in_each_pause(monkeypatch, come_back):
        driver.declare(**anybody)
    driver.check()
    assert (acme.leaving, len(acme.cached)) == (False, 10)
    driver.run()
    for _ in range(2):
        request = driver.ask("acme", prompt(8, seed=1))
        assert driver.finished[request.request_id] == "length"


def test_a_tenant_that_both_configs_serve_is_served_in_between(driver, monkeypatch):
    driver.declare(zone("other"), unknown_tenants=UnknownTenants(mode="AutoRegister"))
    sent = []

    def arrive():
        if not sent:
            sent.append(driver.send("acme", prompt(4), max_tokens=2))
            assert driver.zone("acme").spec.quota.reserved == 0, "its turn has not come"

    with in_each_pause(monkeypatch, arrive):
        driver.declare(zone("other", weight=2), zone("acme", reserved=30))
    assert driver.zone("acme").spec.quota.reserved == 30
    driver.run()
    assert driver.finished[sent[0].request_id] == "length"
